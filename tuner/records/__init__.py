"""What the study database keeps of a trial and of a case: the names, the typed records, one encoder and one decoder.

Databases of earlier versions still open. Only this package knows what those versions wrote in another way:

- The record of a case had neither `files` nor `robot`: `case_record.decode` and `case_record.known_case`.
- An identity held a setting of the pruner that nothing reads any more, and keys that are masked now:
  `case_record.in_newest_form`.
"""
