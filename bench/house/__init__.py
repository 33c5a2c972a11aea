"""The size of the rooms, the imports among their folders, and the house words that they break."""
