"""Order of the keys of scenario files, for `fmt`: identity, subject, arguments, outcome."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from lmos_actors.files import key_orders

from ..model import AnyFile

if TYPE_CHECKING:
    from lmos_actors.files import DataPath

WORDS: Final[tuple[str, ...]] = (
    "lmos", "at", "do", "from", "to", "step", "check", "id", "kind", "dist", "name", "summary", "labels",
    "vars",
    "matrix", "seeds", "trials", "world", "timeout", "stop", "sweep", "delivery", "type", "default", "doc",
    "relay", "extensions", "weights", "rate", "broadcasts", "max_message",
    "system", "network", "directory", "ttl", "nodes", "links", "between", "sides", "one_way", "how",
    "agents", "population", "topology", "tree", "groups", "launcher",
    "speaks", "log", "count", "pass_rate", "share", "use",
    "that", "as", "agg", "of", "agent", "target", "pick", "property", "action", "event", "is", "path",
    "counter",
    "metric", "across", "trend", "tolerance", "field", "expr", "by", "before", "after", "tool", "arguments",
    "single_trace", "through", "called", "in_order", "never", "read", "write", "compare_and_set",
    "schema", "words", "any_of", "without", "tokens", "input_tokens", "output_tokens", "calls", "tools",
    "failed", "equals", "eq", "ne", "contains", "match", "regex", "ge", "gt", "le", "lt",
    "sequence", "command", "url", "access", "follows", "thing", "description", "ca", "cert", "key", "bearer",
    "basic", "apikey", "insecure", "args", "state", "mailbox", "size", "when_full",
    "service_time", "start", "over", "restart", "shutdown", "significant", "optional", "backoff", "initial",
    "replicas", "needs", "listen", "public_url", "client_ca", "security", "origins",
    "allow_operations", "register", "lookup",
    "metrics", "tracing", "omnia", "only", "strict_sessions", "uploads", "mcp", "env", "cwd",
    "limits", "descriptors", "memory", "processors", "node", "session", "connection", "door", "http",
    "ready", "drain", "spread", "update", "order", "batch",
    "pause",
    "strategy", "max_restarts", "max_seconds", "page",
    "auto_shutdown", "root", "children", "store", "latency", "circles", "when", "any", "rules", "unmatched",
    "times", "every", "until",
    "for",
    "fault", "with",
    "loss", "duplicate", "reorder", "corrupt", "bandwidth", "queue",
    "writes", "down", "factor", "status", "skew", "duration", "ref", "payload", "members", "deadline",
    "quorum", "input", "streams", "items", "then", "value", "values", "file", "column", "unit",
    "take", "delay", "emit", "chunk", "call", "reasoning", "progress",
    "reply", "output", "done", "fail", "code", "message", "crash", "unused", "unfit",
    "dead_letter", "fault_free",
    "min", "max", "median", "p50", "p90", "p95", "p99", "jitter", "mean", "deviation", "save", "reason",
    "note", "error", "within", "wait", "steps", "branches", "degree", "rewire", "probability", "width",
    "edges", "timeline",
    "explore", "faults", "at_most",
    "measure", "series", "checks", "report", "junit", "html", "csv",
)  # fmt: skip
"""Every key that a file can have, except keys that are names; `sequence` is also a report."""


def orders_of(data: object) -> dict[DataPath, list[str]]:
    """Return the order of the keys of each mapping in a file, by the path of the mapping."""
    return key_orders(AnyFile, data, WORDS)
