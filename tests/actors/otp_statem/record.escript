#!/usr/bin/env escript
%% Runs programs on the real gen_statem and writes what was handled, in which state, in which order.
%% escript record.escript PROGRAMS SEEN: PROGRAMS holds Erlang terms {Table, Events}.
-module(record).
-mode(compile).
-behaviour(gen_statem).
-export([main/1, init/1, callback_mode/0, handle_event/4]).

main([Programs, Seen]) ->
    {ok, Terms} = file:consult(Programs),
    {ok, Out} = file:open(Seen, [write]),
    lists:foreach(fun(Program) -> io:format(Out, "~s~n", [run(Program)]) end, Terms),
    ok = file:close(Out).

run({Table, Events}) ->
    {ok, Pid} = gen_statem:start(?MODULE, Table, []),
    lists:foreach(fun(Event) -> gen_statem:cast(Pid, Event) end, Events),
    Log = gen_statem:call(Pid, log),
    ok = gen_statem:stop(Pid),
    ["[", lists:join(",", [io_lib:format("[\"~s\",\"~s\"]", [S, E]) || {S, E} <- Log]), "]"].

callback_mode() -> handle_event_function.

init(Table) -> {ok, s0, {Table, []}}.

handle_event({call, From}, log, _State, {_, Log}) ->
    {keep_state_and_data, [{reply, From, lists:reverse(Log)}]};
handle_event(_, Event, State, {Table, Log}) ->
    {Next, Postpone, Acts} = proplists:get_value({State, Event}, Table),
    Data = {Table, [{State, Event} | Log]},
    {next_state, Next, Data, [{postpone, Postpone} | lists:map(fun action/1, Acts)]}.

%% The content of a timeout is the name that it has in the table.
action({start, Name}) -> {kind(Name), 0, Name};
action({cancel, Name}) -> {kind(Name), cancel};
action({next, Event}) -> {next_event, internal, Event}.

kind(state) -> state_timeout;
kind(event) -> timeout;
kind(Name) -> {timeout, Name}.
