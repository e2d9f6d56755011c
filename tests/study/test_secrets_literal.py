"""Keys that stand as literals in a study."""

from tuner.study.keys import literal_keys, masked_trainer, with_references

KEY = "wk-0a1b2c3d4e5f67"
ISSUED = "sk-0a1b2c3d4e5f"


def test_a_command_is_stored_without_its_keys() -> None:
    for command, stored in [
        (f"train --api-key {KEY} --lr 1", "train --api-key *** --lr 1"),
        (f"train --wandb.api_key={KEY}", "train --wandb.api_key=***"),
        ("train --password 'two words' --x 1", "train --password *** --x 1"),
        (f"train hydra.token={KEY}", "train hydra.token=***"),
        ("train --max_tokens 4096 --pad_token 50256", "train --max_tokens 4096 --pad_token 50256"),
        (f"train {ISSUED} --auth {ISSUED} --log=wandb:{ISSUED}", "train *** --auth *** --log=wandb:***"),
        ("train --db postgresql://me:hunter2@host/db", "train --db postgresql://me:***@host/db"),
        ("train --token ${HF_TOKEN} --secret {word}", "train --token ${HF_TOKEN} --secret {word}"),
        ("train --token --fast", "train --token --fast"),
        ("train --key val_loss --monkey 1", "train --key val_loss --monkey 1"),
        (
            f"env MY_KEY={KEY} train --obs_key image --wandb_key {KEY}",
            "env MY_KEY=*** train --obs_key image --wandb_key ***",
        ),
    ]:
        once = masked_trainer({"name": "command", "command": command})
        assert once == {"name": "command", "command": stored}
        assert masked_trainer(once) == once


def test_an_environment_is_stored_without_its_keys() -> None:
    env = f"A=b HF_TOKEN={KEY} MODE=fast run WANDB_API_KEY=two words OPENAI_KEY={KEY} KEY={ISSUED}"
    stored = "A=b HF_TOKEN=*** MODE=fast run WANDB_API_KEY=*** OPENAI_KEY=*** KEY=***"
    assert masked_trainer({"env": env}) == {"env": stored}


def test_a_line_for_a_shell_refers_to_its_keys() -> None:
    for line, shown in [
        (
            "HF_TOKEN=abcdefgh train --api-key 123 --max-tokens 512 --token-dim 64 --token_mixer=attn",
            'HF_TOKEN="${HF_TOKEN}" train --api-key "${API_KEY}" --max-tokens 512 --token-dim 64 --token_mixer=attn',
        ),
        ("train '--wandb.api_key=two words' 'a  b'", """train --wandb.api_key="${WANDB_API_KEY}" 'a  b'"""),
        ("train --revision " + "0a" * 20, "train --revision " + "0a" * 20),
        ("HUB=sk-0a1b2c3d4e5f train sk-0a1b2c3d4e5f", 'HUB="${HUB}" train "${KEY}"'),
        ("train --token \"${HF_TOKEN}\" $'a  b'", "train --token \"${HF_TOKEN}\" $'a  b'"),
    ]:
        assert with_references(line) == shown
        assert with_references(shown) == shown


def test_literals_are_found_by_their_names_and_by_their_look() -> None:
    words = ["train", "--token", KEY, "--commit", "0a" * 20, "--lr", "0.1", "--user", "sk-abcdefghij12"]
    env = {"DB_PASSWORD": "hunter2!", "OMP_NUM_THREADS": "1", "HF_TOKEN": "${HF_TOKEN}"}
    assert literal_keys(words, env) == {
        "token": KEY,
        "commit": "0a" * 20,
        "user": "sk-abcdefghij12",
        "DB_PASSWORD": "hunter2!",
    }
