"""Agents, their mailboxes, and the refs that address them."""

from lmos_actors._late import late

with late(__name__):
    from ._agent import Agent as Agent
    from ._blocking import CircleSearch as CircleSearch
    from ._blocking_work import Outside as Outside
    from ._callers import (
        callers_of as callers_of,
        is_cut_off as is_cut_off,
        runs_awaiting as runs_awaiting,
    )
    from ._circles_afar import HOPS as HOPS
    from ._current_request import (
        current_request as current_request,
        current_run as current_run,
        is_agents_code as is_agents_code,
        key_of_request as key_of_request,
        on_caller_left as on_caller_left,
        on_run_ended as on_run_ended,
        paths_of_request as paths_of_request,
    )
    from ._descriptions import check_id as check_id, describe as describe
    from ._dispatcher import dispatch as dispatch
    from ._doubles import (
        DoubleRequest as DoubleRequest,
        altered as altered,
        answered as answered,
        answered_in_turn as answered_in_turn,
        double_of as double_of,
        on_each_end as on_each_end,
    )
    from ._edge import (
        Edge as Edge,
        Going as Going,
        Inquiry as Inquiry,
        RequestKind as RequestKind,
        TraceMembers as TraceMembers,
        Watch as Watch,
    )
    from ._loop_watch import LoopWatch as LoopWatch
    from ._parking import park_among as park_among, wake_all as wake_all
    from ._population import (
        AgentQuery as AgentQuery,
        Population as Population,
        Resolver as Resolver,
        Spread as Spread,
    )
    from ._remote_requests import (
        CUT_OFF as CUT_OFF,
        Far as Far,
        OneWay as OneWay,
        Peer as Peer,
        RequestClient as RequestClient,
        Seats as Seats,
    )
    from ._request_clients import (
        ask_client as ask_client,
        client_of as client_of,
    )
    from ._runtime import (
        BUDGET as BUDGET,
        RUNTIME as RUNTIME,
        DeadLetter as DeadLetter,
        Owner as Owner,
        Runtime as Runtime,
        Startable as Startable,
        Starter as Starter,
        Turns as Turns,
        asked_of_person as asked_of_person,
        awaited as awaited,
        interruptible as interruptible,
        place_of_caller as place_of_caller,
        title_of as title_of,
    )
    from ._starts import Starts as Starts
    from ._tally import Totals as Totals
    from ._trace_context import (
        TRACES as TRACES,
        Carried as Carried,
        calling as calling,
        current_mark as current_mark,
        emitted_trace as emitted_trace,
        going_out as going_out,
        incoming_mark as incoming_mark,
        incoming_trace as incoming_trace,
        origin_of as origin_of,
        outgoing_mark as outgoing_mark,
        outgoing_trace as outgoing_trace,
        put_in_span as put_in_span,
        read_trace as read_trace,
        recorded_trace as recorded_trace,
        sent_numbers as sent_numbers,
        span_members as span_members,
        trace_context as trace_context,
    )
    from ._unsent import UnsentKind as UnsentKind, UnsentMessage as UnsentMessage
    from ._waiting import Waiting as Waiting, WaitingGraph as WaitingGraph, waiting_graph as waiting_graph
    from ._watchdog import Watchdog as Watchdog
    from .crashes._inspection import Inspection as Inspection
    from .crashes._report_values import (
        class_made_by as class_made_by,
        fields_of as fields_of,
        message_of as message_of,
    )
    from .crashes._reports import CrashReport as CrashReport, text_of_data as text_of_data
    from .crashes._traces import place_of as place_of
    from .crashes._value_text import (
        show_quietly as show_quietly,
    )
    from .declaration._affordances import (
        Action as Action,
        Assignment as Assignment,
        Event as Event,
        EventHandle as EventHandle,
        Property as Property,
        PropertyHandle as PropertyHandle,
        StreamAction as StreamAction,
        Turn as Turn,
    )
    from .declaration._contract import (
        CLASS_PLACE as CLASS_PLACE,
        Contract as Contract,
        outline_of as outline_of,
    )
    from .declaration._declarations import (
        Unit as Unit,
        action as action,
        completed_by as completed_by,
        event as event,
        every as every,
        is_of_system as is_of_system,
        of_system as of_system,
        prop as prop,
    )
    from .declaration._fields import mentions as mentions
    from .declaration._options import About as About
    from .durable._durable_timers import (
        DurableTimer as DurableTimer,
        DurableTimers as DurableTimers,
        TimerRecord as TimerRecord,
        restored_timers as restored_timers,
    )
    from .durable._kept_state import (
        FIND_REF as FIND_REF,
        FactForm as FactForm,
        StateForm as StateForm,
        check_kept_behaviour as check_kept_behaviour,
        ephemeral as ephemeral,
        needs_name as needs_name,
        state_converter as state_converter,
    )
    from .durable._keyed_requests import KeyedRequests as KeyedRequests
    from .finding._gather import invoke_all as invoke_all
    from .finding._hold import (
        end_skew as end_skew,
        hold as hold,
        keep_state as keep_state,
        release as release,
        service_time as service_time,
        set_service_time as set_service_time,
        skew_clock as skew_clock,
    )
    from .finding._pool_link import (
        BY as BY,
        By as By,
        PoolLink as PoolLink,
        key_text as key_text,
        load_of as load_of,
    )
    from .finding._registry import (
        LookupLink as LookupLink,
        contract_of as contract_of,
        lease_of as lease_of,
        link_to as link_to,
        near_agents as near_agents,
        near_links as near_links,
        ref_by as ref_by,
        release_link as release_link,
        slot_of as slot_of,
    )
    from .finding._thing import Thing as Thing, acting_as as acting_as
    from .listening._follow import Following as Following
    from .listening._groups import Change as Change, Group as Group, Joined as Joined, Left as Left
    from .listening._topics import Topic as Topic, TopicStatistics as TopicStatistics, topic_of as topic_of
    from .messages._gates import ENDING as ENDING, RUNNING as RUNNING
    from .messages._input_streams import (
        CallSources as CallSources,
        InputStream as InputStream,
        ItemTarget as ItemTarget,
    )
    from .messages._invocation import (
        CURRENT as CURRENT,
        OwnTask as OwnTask,
        Progress as Progress,
        Run as Run,
        Runners as Runners,
        comes_back as comes_back,
        gate_of_caller as gate_of_caller,
    )
    from .messages._mailbox import (
        DEFAULT_MAILBOX as DEFAULT_MAILBOX,
        DONE as DONE,
        OUT_SEATS as OUT_SEATS,
        AgentStatistics as AgentStatistics,
        Envelope as Envelope,
        MailboxOptions as MailboxOptions,
        MailboxStatistics as MailboxStatistics,
        Mark as Mark,
        Origin as Origin,
        Request as Request,
    )
    from .messages._monitor import (
        NORMAL as NORMAL,
        SHUTDOWN as SHUTDOWN,
        Down as Down,
        ExitReason as ExitReason,
    )
    from .messages._observers import (
        ALL_EVENTS as ALL_EVENTS,
        FEED_SIZE as FEED_SIZE,
        MONITORS as MONITORS,
        Backlog as Backlog,
        BacklogHolder as BacklogHolder,
        Feed as Feed,
        FeedStatistics as FeedStatistics,
        Gap as Gap,
        Occurrence as Occurrence,
        Sink as Sink,
        SinkTable as SinkTable,
        event_key as event_key,
        property_key as property_key,
    )
    from .messages._operation import (
        MISSING as MISSING,
        RUN as RUN,
        STREAM as STREAM,
        TURN as TURN,
        Operation as Operation,
        Parameter as Parameter,
        invoked_stream as invoked_stream,
        not_in as not_in,
    )
    from .messages._output_queue import OutputQueue as OutputQueue
    from .messages._request_keys import (
        KEPT_ANSWERS as KEPT_ANSWERS,
        KEPT_BYTES as KEPT_BYTES,
        KEPT_SECONDS as KEPT_SECONDS,
        KEY_LENGTH as KEY_LENGTH,
        KeptAnswer as KeptAnswer,
        RequestKey as RequestKey,
        far_key as far_key,
        keyed_requests_of as keyed_requests_of,
        no_answers as no_answers,
        wrong_key as wrong_key,
        wrong_operation as wrong_operation,
    )
    from .refs._after_kept import AfterKept as AfterKept, keep_whole as keep_whole, wait_kept as wait_kept
    from .refs._forwarding import ForwardingLink as ForwardingLink
    from .refs._link import Attempt as Attempt, Invocation as Invocation, Link as Link
    from .refs._ref import (
        Call as Call,
        CallStatus as CallStatus,
        Ref as Ref,
        entered_within as entered_within,
        tell_within as tell_within,
    )
    from .refs._retrying import acts_again as acts_again, found_link as found_link
    from .slot._calls import (
        LocalCall as LocalCall,
        LocalStream as LocalStream,
        Outlet as Outlet,
        pour as pour,
    )
    from .slot._links import Monitor as Monitor
    from .slot._output_gate import OutputGate as OutputGate
    from .slot._skewed_clock import clock_seconds as clock_seconds, world_seconds as world_seconds
    from .slot._slot import Slot as Slot, Status as Status
    from .slot._slot_start import start_agent as start_agent, start_now as start_now
    from .slot._slot_timers import next_turns as next_turns
    from .slot._traced_slot import (
        PropagatingSlot as PropagatingSlot,
        RecordedSlot as RecordedSlot,
        TracedSlot as TracedSlot,
        tap as tap,
        untap as untap,
    )
    from .values import (
        PARTS as PARTS,
        Secret as Secret,
        Secrets as Secrets,
        Shape as Shape,
        conceal as conceal,
        conceal_all as conceal_all,
        is_agent_class as is_agent_class,
        record_of as record_of,
        shape_of as shape_of,
    )
