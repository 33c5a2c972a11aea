"""A gateway in which only some planners can order KV transfers. Its first argument names them, or "none".

It is used only for comparisons: the value of an order shows against a gateway that does not issue it.
"""

from __future__ import annotations

import sys

from gateway.__main__ import main
from gateway.kv.moves.kv_moves import MoveScheduler
from planning.kv_moves.kv_move import KvMove

_ASK = MoveScheduler.ask


def _only(allowed: frozenset[str]) -> None:
    def ask(
        orders: MoveScheduler, move: KvMove, pool_id: str, block_tokens: int, now: float, request_id: str = ""
    ) -> bool:
        return move.planner in allowed and _ASK(orders, move, pool_id, block_tokens, now, request_id)

    MoveScheduler.ask = ask  # type: ignore[method-assign,assignment]  # this process is a comparison's


if __name__ == "__main__":
    _only(frozenset(sys.argv.pop(1).split(",")))
    sys.exit(main())
