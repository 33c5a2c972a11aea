"""Policies on trial: what is heard of their arms, how a look at them is kept, and which arms a pool has."""
