"""The live feed: websocket, frames, and the sentence above the Fleet page."""
