"""How large the rooms are, how their folders import each other, and which words of the house they break."""
