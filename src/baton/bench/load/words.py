"""Filler text for servers that take no token ids: common words, one token each nearly everywhere.

How many tokens the words really have, and what a template adds, is measured on the server.
"""

_TEXT = """
    time people way day man thing woman life child world school state family student group
    country problem hand part place case week company system program question work government
    number night point home water room mother area money story fact month lot right study book
    eye job word business issue side kind head house service friend father power hour game line
    end member law car city community name president team minute idea body information back
    parent face others level office door health person art war history party result change
    morning reason research girl guy moment air teacher force education
"""
WORDS = tuple(_TEXT.split())


def filler(indices: tuple[int, ...]) -> str:
    """The words of these indices."""
    return " ".join([WORDS[index] for index in indices])
