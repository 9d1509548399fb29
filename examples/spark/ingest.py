"""Keep a table up to date with a stream or a topic, on a cluster of Spark: the arguments of ``tally spark ingest``.

    spark-submit --master spark://host:7077 examples/spark/ingest.py demo/flights/persistent/all delta:/shared/flights \
        --checkpoint /shared/flights-checkpoint
"""

import sys

from tallystick.cli import main

sys.exit(main(["spark", "ingest", *sys.argv[1:]]))
