"""Foundations of the runtime: time, chance, the memory budget, instruments, redaction."""

from lmos_actors._late import late

with late(__name__):
    from ._annotations import (
        Unknown as Unknown,
        declared as declared,
        place_of as place_of,
        place_of_function as place_of_function,
        remember_names as remember_names,
        signature_of as signature_of,
        type_of_field as type_of_field,
        types_of_class as types_of_class,
        types_of_function as types_of_function,
        unknown_in as unknown_in,
    )
    from ._blocks import for_async_with as for_async_with
    from ._bounded import NOT_NEEDED_YET as NOT_NEEDED_YET, Bounded as Bounded
    from ._budget import (
        OBJECT as OBJECT,
        SMALL as SMALL,
        SPENT as SPENT,
        TOTAL as TOTAL,
        Account as Account,
        Budget as Budget,
        BudgetStatistics as BudgetStatistics,
        LooseAccount as LooseAccount,
        weight as weight,
    )
    from ._certificates import trusted_certificates as trusted_certificates
    from ._entropy import (
        Entropy as Entropy,
        RandomStream as RandomStream,
        SeededBytes as SeededBytes,
        seeded_entropy as seeded_entropy,
    )
    from ._environment import (
        Environment as Environment,
        current_environment as current_environment,
        set_environment as set_environment,
        time_jumps as time_jumps,
    )
    from ._instrument import (
        PLAIN_JSON as PLAIN_JSON,
        PLAIN_LINES as PLAIN_LINES,
        Instrument as Instrument,
        Kind as Kind,
        LogInstrument as LogInstrument,
        describe as describe,
        encode_plain as encode_plain,
        plain as plain,
    )
    from ._json_texts import (
        check_members as check_members,
        outside_strings as outside_strings,
        read_json as read_json,
    )
    from ._lines import LineReader as LineReader
    from ._numbers import (
        check_limits as check_limits,
        is_number as is_number,
        number_of as number_of,
        whole_number_of as whole_number_of,
    )
    from ._offspring import (
        MARK as MARK,
        Adopted as Adopted,
        adopt as adopt,
        end_below as end_below,
        end_left as end_left,
        end_strangers as end_strangers,
        end_tree as end_tree,
    )
    from ._patterns import i_regexp as i_regexp, use_i_regexps as use_i_regexps
    from ._python_texts import (
        json_error as json_error,
        unhashable as unhashable,
        unknown_argument as unknown_argument,
    )
    from ._redaction import HIDDEN as HIDDEN, Headers as Headers, SecretBytes as SecretBytes, hide as hide
    from ._remedies import Spelling as Spelling, refusal_remedy as refusal_remedy, remedy as remedy
    from ._schemas import schema_complaint as schema_complaint, schema_problem as schema_problem
    from ._scopes import (
        EndOfWait as EndOfWait,
        end_of_wait as end_of_wait,
        waits_for_nursery as waits_for_nursery,
    )
    from ._shielded_nursery import ShieldedNursery as ShieldedNursery
    from ._source_lines import (
        ASYNCIO as ASYNCIO,
        LIBRARIES as LIBRARIES,
        WAY_OUT as WAY_OUT,
        line_of as line_of,
        line_of_user as line_of_user,
        runs_asyncio as runs_asyncio,
        uncollected as uncollected,
    )
    from ._text import printable as printable
    from ._timers import (
        BUDGET as BUDGET,
        TaskTimers as TaskTimers,
        Timer as Timer,
        TimerHeap as TimerHeap,
        Timers as Timers,
        timers_of as timers_of,
    )
