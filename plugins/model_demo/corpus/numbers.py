"""Exchanges about numbers: simple arithmetic, counting, and comparing two decimals."""

from .draw import Draw
from .exchange import Exchange, asked

_SUMS_SEEN = (
    "What is {} {} {}?", "{} {} {}", "{} {} {} = ?", "Calculate {} {} {}.", "How much is {} {} {}?",
    "Compute {} {} {}", "what's {} {} {}?",
)  # fmt: skip
_SUMS_UNSEEN = ("Please work out {} {} {}.", "Can you calculate {} {} {}?")
_SIGNS = {"+": ("+", "plus"), "-": ("-", "minus"), "*": ("*", "times", "x")}

_GREATER_SEEN = (
    "{} and {}, which is greater?", "Which is greater, {} or {}?", "Which is bigger: {} or {}?",
    "{} or {}, which is larger?", "Which number is greater, {} or {}?", "What is greater, {} or {}?",
    "{} and {}, which is bigger?", "Is {} or {} greater?",
)  # fmt: skip
_GREATER_UNSEEN = ("Tell me which of {} and {} is greater.", "{} vs {}: which one is larger?")


def arithmetic(draw: Draw) -> Exchange:
    """Make a question for a sum, a difference or a product of small numbers."""
    sign = draw.weighted("+-*", (4, 3, 3))
    a, b = draw.fresh(lambda: _operands(draw, sign))
    result = {"+": a + b, "-": a - b, "*": a * b}[sign]
    question = draw.wording(_SUMS_SEEN, _SUMS_UNSEEN).format(a, draw.pick(_SIGNS[sign]), b)
    steps = {"+": _adding, "-": _taking_away, "*": _multiplying}[sign](a, b)
    return asked("arithmetic", question, f"{a} {sign} {b} = {result}", f"= {result}", steps)


def _operands(draw: Draw, sign: str) -> tuple[int, int]:
    if sign == "*":
        return draw.integer(0, 12), draw.integer(0, 12)
    high = draw.weighted((10, 99), (1, 2))
    a, b = draw.integer(0, high), draw.integer(0, high)
    return (max(a, b), min(a, b)) if sign == "-" else (a, b)


def _adding(a: int, b: int) -> str:
    ones = a % 10 + b % 10
    carried = f" I write {ones % 10} and carry 1." if ones > 9 else ""
    carry = " + 1" if ones > 9 else ""
    tens = f" Tens: {a // 10} + {b // 10}{carry} = {(a + b - ones % 10) // 10}."
    return f"Ones: {a % 10} + {b % 10} = {ones}.{carried}{tens} So the sum is {a + b}."


def _taking_away(a: int, b: int) -> str:
    if a % 10 >= b % 10:
        ones = f"Ones: {a % 10} - {b % 10} = {a % 10 - b % 10}."
        tens = f" Tens: {a // 10} - {b // 10} = {a // 10 - b // 10}."
    else:
        ones = f"Ones: I borrow, 1{a % 10} - {b % 10} = {10 + a % 10 - b % 10}."
        tens = f" Tens: {a // 10} - 1 - {b // 10} = {a // 10 - 1 - b // 10}."
    return f"{ones}{tens} So the difference is {a - b}."


def _multiplying(a: int, b: int) -> str:
    return f"I need {a} times {b}. From the table, {a} times {b} is {a * b}."


def decimals(draw: Draw) -> Exchange:
    """Make a question which of two decimals is greater, such as 9.11 and 9.8."""
    a, b = draw.fresh(lambda: _decimal_pair(draw))
    greater, smaller = (a, b) if float(a) > float(b) else (b, a)
    question = draw.wording(_GREATER_SEEN, _GREATER_UNSEEN).format(a, b)
    answer = f"{greater} is greater than {smaller}."
    return asked("decimals", question, answer, answer, _comparing(a, b, greater))


def _decimal_pair(draw: Draw) -> tuple[str, str]:
    while True:
        whole = draw.integer(0, 20)
        other = whole if draw.chance(0.7) else draw.integer(0, 20)
        a, b = f"{whole}.{_fraction(draw)}", f"{other}.{_fraction(draw)}"
        if float(a) != float(b):
            return a, b


def _fraction(draw: Draw) -> str:
    return f"{draw.integer(1, 9)}" if draw.chance(0.5) else f"{draw.integer(0, 9)}{draw.integer(1, 9)}"


def _comparing(a: str, b: str, greater: str) -> str:
    (whole_a, part_a), (whole_b, part_b) = a.split("."), b.split(".")
    if whole_a != whole_b:
        return f"The whole parts are {whole_a} and {whole_b}. They differ. So {greater} is greater."
    padded_a, padded_b = part_a.ljust(2, "0"), part_b.ljust(2, "0")
    return (
        f"The whole parts are {whole_a} and {whole_b}. They are the same. "
        f"With two decimals I compare {whole_a}.{padded_a} and {whole_b}.{padded_b}. "
        f"{max(padded_a, padded_b)} is more than {min(padded_a, padded_b)}. So {greater} is greater."
    )


def counting(draw: Draw) -> Exchange:
    """Make a request to count from one number to another."""
    start = draw.weighted((1, draw.integer(2, 40)), (2, 1))
    end = start + draw.integer(3, 12)
    seen = ("Count from {} to {}.", "Count from {} to {}", "Please count from {} to {}.", "count {} to {}")
    question = draw.wording(seen, ("Could you count from {} up to {}?",)).format(start, end)
    answer = ", ".join(str(number) for number in range(start, end + 1))
    return asked("counting", question, answer, answer, f"I start at {start} and stop at {end}.")
