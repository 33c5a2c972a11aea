"""What `manage.py doctor` looks at: one file per question, each answered with findings."""
