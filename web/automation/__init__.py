"""The Automation and Jobs pages: what each automation does, and the actions that people can take."""
