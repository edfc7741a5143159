"""Stores of durable state, the writer through which a trio program uses a store, and agents' states."""

from lmos_actors._late import late

with late(__name__):
    from ._address import (
        SERVER as SERVER,
        has_one_writer as has_one_writer,
        reader_of as reader_of,
        server_store as server_store,
        store_of as store_of,
        with_id as with_id,
    )
    from ._agent_states import AgentStates as AgentStates
    from ._backup import back_up as back_up
    from ._identities import (
        Identities as Identities,
        IdentityOptions as IdentityOptions,
        NewIdentity as NewIdentity,
        Refused as Refused,
    )
    from ._keys import key_of as key_of, parts_of as parts_of, range_of as range_of
    from ._lock_file import LockFile as LockFile
    from ._memory import MemoryStore as MemoryStore
    from ._open_turns import turns_in as turns_in
    from ._sessions import (
        TOO_LARGE as TOO_LARGE,
        KeptMessage as KeptMessage,
        KeptTurn as KeptTurn,
        OpenTurn as OpenTurn,
        Role as Role,
        Session as Session,
        SessionOptions as SessionOptions,
        Sessions as Sessions,
    )
    from ._simulated import (
        SimulatedDisk as SimulatedDisk,
        SimulatedStore as SimulatedStore,
        WritesAtCrash as WritesAtCrash,
    )
    from ._sqlite import SqliteStore as SqliteStore
    from ._store import (
        AsyncStore as AsyncStore,
        Batch as Batch,
        Check as Check,
        Conflict as Conflict,
        Delete as Delete,
        DeleteRange as DeleteRange,
        Durability as Durability,
        Expected as Expected,
        IndexedStore as IndexedStore,
        Matching as Matching,
        Paged as Paged,
        Put as Put,
        Store as Store,
        Write as Write,
        after as after,
        records_of as records_of,
    )
    from ._writer import (
        StoreWriter as StoreWriter,
        Ticket as Ticket,
        WriterStatistics as WriterStatistics,
        check_only_writer as check_only_writer,
        open_writer as open_writer,
    )
