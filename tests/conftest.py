from hypothesis import settings

settings.register_profile("no clock", deadline=None)  # how long an example takes depends on who else is at work
settings.load_profile("no clock")
