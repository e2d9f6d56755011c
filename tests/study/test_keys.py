"""Keys in what a trainer prints, found by their form or by their name."""

from tuner.study import without_keys

HIDDEN = [
    ("401 for hf_AbCdEf1234567890", "401 for ***"),
    ("Incorrect API key provided: sk-proj-abc_DEF123456789.", "Incorrect API key provided: ***."),
    ("clone https://x:ghp_0123456789abcdefABCDEF@github.com", "clone https://x:***@github.com"),
    ("AWS AKIAABCDEFGHIJKLMNOP refused", "AWS *** refused"),
    ("jwt eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.s1g_x", "jwt ***"),
    ("WANDB_API_KEY='wk-0a1b2c3d' is wrong", "WANDB_API_KEY='***' is wrong"),
    ('{"password": "correct horse battery"}', '{"password": "***"}'),
    ("password: hunter2!", "password: ***"),
    ("secret key: correcthorsebattery", "secret key: ***"),
    ("Authorization: Bearer abc.def-123456", "Authorization: Bearer ***"),
    ("cannot reach postgresql://me:hunter2@host/db", "cannot reach postgresql://me:***@host/db"),
]
USUAL = [
    "hf_hub_download failed",
    "sk-learn is old",
    "commit 0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a",
    "token: 50256",
    "token: 12345678",
    "step 4 tokens/s 123456.7 lr 1e-4",
    "token = self.tokenizer.pad_token_id",
    "token = tokenizer.encode(text8)",
    "token_type_ids: tensor12345678",
    "max_tokens=123456789",
    "KeyError: 'api_key'",
    "pwd: /home/me/x12345678",
    "git@github.com:me/x",
    "token ${HF_TOKEN}",
    "redis://me:${PASSWORD}@host",
    "password=***",
]


def test_a_key_is_hidden() -> None:
    for line, shown in HIDDEN:
        assert without_keys(line) == shown
        assert without_keys(shown) == shown


def test_what_is_no_key_stays() -> None:
    for line in USUAL:
        assert without_keys(line) == line
