"""placeholder"""


def predict(*a):
    return ()
