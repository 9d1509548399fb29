"""The same client without async, for scripts and notebooks. Prints::

3 entries, 15 bytes
b'gamma'
"""

import tallystick.sync

with tallystick.sync.connect(tallystick.find_cluster().uri) as bk:
    with bk.create_ledger(digest="hmac", password=b"secret", custom_metadata={"made-by": b"an example"}) as writer:
        writer.append_batch([b"alpha", b"beta!", b"gamma"])

    with bk.open_ledger(writer.id, password=b"secret") as reader:
        print(f"{reader.last_entry + 1} entries, {reader.length} bytes")
        print([entry.data for entry in reader][-1])

    bk.delete_ledger(writer.id)  # an example leaves nothing behind
