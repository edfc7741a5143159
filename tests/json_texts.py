"""A table of JSON texts, those that have one meaning and those that have none or two, for every door."""

from __future__ import annotations

READ = {
    "a colon in texts": r'{"a:\":": ":", "b": "\\"}',
    "one name in two objects": '[{"a": 1}, {"a": 2}, {"b": {"a": 3}}]',
    "a pair of surrogates": r'"\ud83d\ude00"',
    "a delete": '"\x7f"',
    "the last code point of a plane": '"\uffff"',
    "a byte order mark in a text": '"\ufeff"',
    "escapes": r'"\u0000\u001f\/\b"',
    "a small number": "1e-400",
    "a negative zero": "-0.0",
    "an integer of 71 bits": str(2**70 + 1),
    "twenty levels": "[" * 20 + "1" + "]" * 20,
    "space": ' [ 1 , { "a" : null } ] ',
}
"""Values that every door reads, as `json.loads` does."""

REFUSED = {
    "a member twice": '{"a": 1, "a": 2}',
    "a member twice, alike": '{"a":1,"a":1}',
    "a member twice, without a name": '{"":1,"":2}',
    "a member twice, in depth": '[{"b": [{"c": {"a": 1, "a": 2}}]}]',
    "a member twice, spelled in two ways": r'{"a": 1, "\u0061": 2}',
    "a member twice, and a colon in a text": r'{"a": ":", "a": "\":"}',
    "an infinite number": "1e400",
    "an infinite negative number": "[-1e400]",
    "infinity": "Infinity",
    "not a number": "NaN",
    "half a pair": r'"\ud800"',
    "the other half": r'"\udc00x"',
    "a control character": '"\x1f"',
    "a leading zero": "01",
    "a comma too much": "[1,]",
    "two values": "1 2",
    "nothing": "",
    "an integer of 5,000 digits": "1" * 5000,
    "a hundred thousand levels": "[" * 100_000,
    "a hundred thousand objects": '{"a":' * 100_000,
}
"""What no door reads."""
