"""`python -m headway` equals `headway`."""

from headway import main

main()
