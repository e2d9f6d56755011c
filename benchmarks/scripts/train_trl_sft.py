"""TRL: supervised fine-tuning of a small model made from its configuration, on texts made here.

python train_trl_sft.py --learning_rate 2.0e-5 --per_device_train_batch_size 4 --gradient_accumulation_steps 4 \
    --eval_strategy steps --eval_steps 100 --num_train_epochs 2 --output_dir out-sft

Every option of `SFTConfig` is an option of this program. The real library trains, and prints what it prints.
"""

import random

import truth_file
from datasets import Dataset
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import GPT2Config, GPT2LMHeadModel, PreTrainedTokenizerFast, TrainerCallback
from trl import SFTConfig, SFTTrainer, TrlParser

WORDS = [f"word{number}" for number in range(500)]


def texts(count, seed):
    draw = random.Random(seed)
    return Dataset.from_dict({"text": [" ".join(draw.choices(WORDS, k=draw.randint(20, 60))) for _ in range(count)]})


def make_tokenizer():
    vocab = {word: token for token, word in enumerate(["<unk>", "<eos>", *WORDS])}
    tokenizer = Tokenizer(models.WordLevel(vocab, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="<unk>", eos_token="<eos>", pad_token="<eos>")


class Truth(TrainerCallback):
    """Counts the rows that the model is given in training."""

    def __init__(self, model):
        self.rows = 0
        model.register_forward_pre_hook(self.count, with_kwargs=True)

    def count(self, model, args, kwargs):
        if model.training:
            self.rows += len(kwargs["input_ids"])

    def on_step_end(self, args, state, control, **kwargs):
        truth_file.step(self.rows)
        self.rows = 0


def main():
    parser = TrlParser((SFTConfig,))
    parser.set_defaults(
        output_dir="out-sft", num_train_epochs=2, per_device_train_batch_size=4, gradient_accumulation_steps=4,
        eval_strategy="steps", eval_steps=100, max_length=64, report_to="none", bf16=False,
    )  # fmt: skip
    (training_args,) = parser.parse_args_and_config()
    model = GPT2LMHeadModel(GPT2Config(vocab_size=502, n_positions=64, n_embd=96, n_layer=2, n_head=4))
    truth_file.begin("preparation")
    trainer = SFTTrainer(
        model=model,
        args=training_args,
        train_dataset=texts(4000, 0),
        eval_dataset=texts(400, 1),
        processing_class=make_tokenizer(),
        callbacks=[Truth(model)],
    )
    truth_file.end("preparation")
    trainer.train()
    trainer.save_model(training_args.output_dir)


if __name__ == "__main__":
    main()
