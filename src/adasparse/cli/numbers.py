"""Numbers as users write them."""


def parse_numbers(text: str) -> list[int]:
    """Return the positive integers of a list such as ``64,128``, in rising order.

    Example:
        >>> parse_numbers("128, 64")
        [64, 128]
    """
    try:
        found = sorted({int(part) for part in text.split(",")})
    except ValueError:
        found = []
    if not found or found[0] < 1:
        raise ValueError(f"A list of numbers must be positive integers with commas; got {text!r}.")
    return found
