"""Telling what nobody should write down: passwords, keys, codes, numbers of cards. Pure."""

from __future__ import annotations

import re
from itertools import pairwise
from typing import Final

LONGEST = 20_000  # characters that are looked at; no entry is longer

_NAMED = re.compile(
    r"\b(?:pass(?:word|phrase|code|wd)s?|pwd|pw|api[ _-]?keys?|(?:secret|private|access"
    r"|signing)[ _-]?keys?"
    r"|(?:access|auth|bearer|refresh)[ _-]?tokens?|client[ _-]?secret|cvv2?|cvc2?|(?:2fa|otp"
    r"|one[ -]time)"
    r"(?:\s+(?:code|password))?|(?:seed|recovery|mnemonic)\s+(?:phrase|words?|key|code)s?"
    r"|(?:security|verification|login|confirmation|bank)\s+code|log-?in\s+data|root\s+access)\b"
    r"|密码|口令|密钥|秘钥|私钥|助记词|验证码|动态码|校验码|安全码|取件码",
    re.IGNORECASE,
)
# These words have other meanings too, so what follows must look like one.
_PIN = re.compile(
    r"\b(?:pin|code|combination)\b[^.\n\d]{0,60}(?<![\d.,])\d{4,8}(?![\d.,]*\d)"
    r"|(?<!\d)\d{4,8}\s?(?:#|[加按]?井号)"
    r"|\b(?:pin|safe|combination|lock)\b[^.\n\d]{0,30}\d\d-\d\d-\d\d\b"
    r"|(?:码|暗号)\s*(?:是|为|:|：)?\s*\d{4,8}(?!\d)|锁[^，。\d]{0,8}\d{4,8}(?![\d年月元块])",
    re.IGNORECASE,
)
_PREFIXED = re.compile(
    r"-----BEGIN [A-Z ]{0,40}KEY|\b(?:sk|pk|rk|ghp|gho|ghs|glpat|xox[abps]|hf|npm|pypi"
    r"|whsec)[-_][\w-]{8,}"
    r"|\b(?:AKIA|ASIA|AIza|eyJ)[\w-]{12,}|\bgithub_pat_\w+"
)
_LONG_RUN = re.compile(r"(?<![\w/.:-])[A-Za-z0-9+=_$%&#!*~^-]{20,200}(?![\w/.-])")
# A user's name and what goes with it, as in "guest / BlueHeron-77".
_PAIR = re.compile(
    r"\b(?:log-?in|wifi|wi-fi|user(?:name)?|账号|帐号|用户名)[^.\n]{0,40}?\s[/|]\s*\S{6,}",
    re.IGNORECASE,
)
_DIGITS = re.compile(r"(?<![\d.,+])\d(?:[ -]?\d){11,18}(?![\d]|[.,]\d)")
# A Chinese citizen's number, or a key of digits: no other number has so many.
_LONG_NUMBER = re.compile(r"(?<!\d)(?:\d{17}[\dXx](?!\w)|\d{20})")
_SHORT_CODE = re.compile(
    r"(?<![\d.,:/#€$£¥+-])\d{6}(?![\d.,]*\d|\s*(?:km|kg|miles|元|块|人|次|[€$£]))"
)
_SENT = re.compile(
    r"\b(?:text|sms|message|bank|code)\b|短信|银行|动态|收到.{0,8}码|有效", re.IGNORECASE
)
_CARD_LENGTHS: Final = range(13, 20)


def holds_secret(text: str) -> bool:
    """True when a text names, or looks like, what gives access to something or to money."""
    text = text[:LONGEST]
    if any(pattern.search(text) for pattern in (_NAMED, _PIN, _PREFIXED, _PAIR, _LONG_NUMBER)):
        return True
    if any(_is_card(found.group()) for found in _DIGITS.finditer(text)):
        return True
    if any(_is_random(found.group()) for found in _LONG_RUN.finditer(text)):
        return True
    return bool(_SHORT_CODE.search(text) and _SENT.search(text))


def _is_card(digits: str) -> bool:
    """Whether a row of digits is a card's: by its length and its check digit, or its grouping."""
    bare = [int(digit) for digit in digits if digit.isdigit()]
    if len(bare) not in _CARD_LENGTHS:
        return False
    total = sum(bare[-1::-2]) + sum(sum(divmod(2 * digit, 10)) for digit in bare[-2::-2])
    # Chinese bank cards begin with 62 and are often written with a digit wrong; so are typed ones.
    return (
        total % 10 == 0
        or bare[:2] == [6, 2]
        or re.fullmatch(r"(?:\d{4}[ -]){3}\d{1,7}", digits) is not None
    )


def _is_random(run: str) -> bool:
    """Whether a long run of characters is made of all kinds, as keys are and words are not."""
    kinds = (str.isdigit, str.islower, str.isupper)
    if not all(any(kind(character) for character in run) for kind in kinds):
        return False
    # Between letters and digits, and between cases, a key changes all the time.
    changes = sum(_kind(one) != _kind(other) for one, other in pairwise(run))
    return changes >= len(run) / 4


def _kind(character: str) -> int:
    return (
        0 if character.isdigit() else 1 if character.islower() else 2 if character.isupper() else 3
    )
