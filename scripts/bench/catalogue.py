"""All benches, in the order of the table."""

from scripts.bench.arrival import BENCH as ARRIVAL
from scripts.bench.check_streams import BENCH as CHECK_STREAMS
from scripts.bench.compare_rows import BENCH as COMPARE_ROWS
from scripts.bench.digest_rows import BENCH as DIGEST_ROWS
from scripts.bench.findings import BENCH as FINDINGS
from scripts.bench.full_vocabulary import BENCH as FULL_VOCABULARY
from scripts.bench.help_text import BENCH as HELP_TEXT
from scripts.bench.measure import Bench
from scripts.bench.memory import BENCH as MEMORY
from scripts.bench.overhead import BENCH as OVERHEAD
from scripts.bench.replies import BENCH as REPLIES
from scripts.bench.report_page import BENCH as REPORT_PAGE
from scripts.bench.slopes import BENCH as SLOPES
from scripts.bench.solo_and_waves import BENCH as SOLO_AND_WAVES
from scripts.bench.verification import BENCH as VERIFICATION

__all__ = ["BENCHES"]

BENCHES: tuple[Bench, ...] = (
    SOLO_AND_WAVES,
    FULL_VOCABULARY,
    REPLIES,
    ARRIVAL,
    OVERHEAD,
    DIGEST_ROWS,
    CHECK_STREAMS,
    VERIFICATION,
    FINDINGS,
    REPORT_PAGE,
    HELP_TEXT,
    COMPARE_ROWS,
    MEMORY,
    SLOPES,
)
