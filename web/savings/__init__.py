"""The Savings page: what live policies saved, with ranges, beside what holdbacks measured."""
