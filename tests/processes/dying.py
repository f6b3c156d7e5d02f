"""A program that ends as soon as it is started: a process that cannot live."""


def main() -> None:
    pass
