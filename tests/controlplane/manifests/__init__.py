"""Tests of files of objects."""
