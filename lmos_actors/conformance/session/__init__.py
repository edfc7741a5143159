"""Sessions with a server, and the code that all cases share."""

from lmos_actors._late import late

with late(__name__):
    from ._case import (
        CaseContext as CaseContext,
        LmosServer as LmosServer,
        Run as Run,
    )
    from ._http_forms import (
        GOOD as GOOD,
        OF_CLIENT as OF_CLIENT,
        accepting as accepting,
        carry_out as carry_out,
        first_form as first_form,
        forms_for as forms_for,
        must_be_refused as must_be_refused,
        read_by_socket as read_by_socket,
        reading_form as reading_form,
        shown as shown,
        value_of as value_of,
        wrong_for as wrong_for,
    )
    from ._judge import (
        JudgedServer as JudgedServer,
        JudgingOptions as JudgingOptions,
        judge as judge,
        run_case as run_case,
    )
    from ._liveness import (
        FITTING as FITTING,
        MalformedMessage as MalformedMessage,
        answers as answers,
        judge_malformed as judge_malformed,
        must_answer as must_answer,
        must_be_read as must_be_read,
        must_be_there as must_be_there,
        must_end as must_end,
        note_close as note_close,
    )
    from ._messages import (
        ABSENT as ABSENT,
        MANDATORY as MANDATORY,
        UUID4 as UUID4,
        ReceivedMessage as ReceivedMessage,
        faults as faults,
        parse_message as parse_message,
    )
    from ._probe import (
        Case as Case,
        Chapter as Chapter,
        Failed as Failed,
        NoAnswer as NoAnswer,
        Probe as Probe,
        Requirement as Requirement,
        cases_of as cases_of,
        chosen_of as chosen_of,
    )
    from ._samples import (
        SILENCE as SILENCE,
        a_reading as a_reading,
        a_status as a_status,
        an_error as an_error,
        cancel_run as cancel_run,
        is_offered as is_offered,
        must_be_meant_to_fail as must_be_meant_to_fail,
        one_of_each as one_of_each,
        pending_call as pending_call,
        put_back as put_back,
        restorable_values as restorable_values,
        values_of as values_of,
    )
    from ._session import (
        AS_IN_EXAMPLES as AS_IN_EXAMPLES,
        AS_KOTLIN as AS_KOTLIN,
        AS_WRITTEN as AS_WRITTEN,
        Dialect as Dialect,
        Sent as Sent,
        Session as Session,
    )
    from ._subscriptions import (
        EventTrial as EventTrial,
        cause as cause,
        changing as changing,
        events as events,
        first_change as first_change,
        first_event as first_event,
        listen as listen,
        must_accept as must_accept,
        observing as observing,
        readings as readings,
        send_and_flush as send_and_flush,
        subscribed as subscribed,
    )
