"""How each kind of trainer is found, varied and launched."""
