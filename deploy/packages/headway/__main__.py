"""`python -m headway` equals `headway`."""

from headway import main  # type: ignore[import-not-found]  # exists in the wheel only

main()
