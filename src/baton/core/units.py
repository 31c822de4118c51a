"""Quantities as a person reads them."""

_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")


def shown_nbytes(nbytes: int) -> str:
    """Bytes in the largest unit of which there is at least one."""
    value, unit = float(nbytes), 0
    while value >= 1024 and unit < len(_UNITS) - 1:
        value, unit = value / 1024, unit + 1
    return (
        f"{value:.0f} {_UNITS[unit]}"
        if unit == 0 or value >= 100
        else f"{value:.1f} {_UNITS[unit]}"
    )
