"""The columns of the format ``tally-ledger``.

::

    ledger BIGINT | entry BIGINT | lac BIGINT | length BIGINT | payload BINARY       none is ever null

``lac`` is the writer's last add confirmed when it sent the entry (Q6); ``length`` sums the ledger's payload bytes up to
and with this entry. Their Arrow form is that of ``bookkeeper/ledger/arrow.py``.
"""

from __future__ import annotations

from tallystick.pipeline.columns import Columns

FORMAT = "tally-ledger"
COLUMNS = Columns({"ledger": "bigint", "entry": "bigint", "lac": "bigint", "length": "bigint", "payload": "binary"})
