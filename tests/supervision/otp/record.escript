#!/usr/bin/env escript
%%! +S 1:1
%% Tells stories to real OTP supervisors, all at the same time, and writes what it saw.
%%
%% record.escript STORIES SEEN: STORIES holds one Erlang term per story (stories.py writes them), SEEN gets
%% one JSON line per story. One scheduler, so that the order of signals from one ending process is the order
%% of their effects. Every story begins 100 ms into a second of the clock that OTP counts restarts with.
-module(record).
-mode(compile).
-export([main/1, init/1, start_node/3, worker/5]).

-define(TICK, 500).
-define(LATE, 250).

main([In, Out]) ->
    logger:set_primary_config(level, none),
    {ok, Stories} = file:consult(In),
    Base = (erlang:monotonic_time(1) + 2) * 1000 + 100,
    Told = [spawn_monitor(fun() -> exit({seen, tell(Story, Base)}) end) || Story <- Stories],
    Lines = [receive {'DOWN', Ref, process, _, {seen, Seen}} -> [json(Seen), $\n];
                     {'DOWN', Ref, process, _, Wrong} -> io:format(standard_error, "~p~n", [Wrong]), halt(1)
             end || {_, Ref} <- Told],
    ok = file:write_file(Out, Lines).

%% The storyteller

tell(#{tree := Tree = {s, #{name := Name}}, steps := Steps, 'end' := End}, Base) ->
    process_flag(trap_exit, true),
    Seer = spawn_link(fun() -> see(#{base => Base, log => [], late => 0, starts => #{}, pids => #{},
                                     monitors => #{}, told => #{}}) end),
    sleep_until(Base),
    {Answers, Final} =
        case start_node(Seer, Name, Tree) of
            {ok, Root} ->
                Asked = [do(Seer, Base, Step) || Step <- Steps],
                sleep_until(Base + End * ?TICK),
                Look = look(Name, Root),
                exit(Root, shutdown),
                receive {'EXIT', Root, _} -> ok end,
                {[answer(Ref) || Ref <- Asked, Ref =/= none], Look};
            {error, _} ->
                {[<<"unanswered">> || {Kind, _} <- Steps, Kind =/= exit], []}
        end,
    {Events, Late} = ask(Seer, stop),
    #{events => Events, answers => Answers, final => Final, late => Late > ?LATE}.

do(Seer, Base, {exit, #{at := At, sup := Sup, names := Names, reason := Reason}}) ->
    sleep_until(Base + At * ?TICK),
    Owner = ask(Seer, {pid, Sup}),
    Suspended = is_pid(Owner) andalso catch erlang:suspend_process(Owner),
    [leave(ask(Seer, {pid, <<Sup/binary, $/, Name/binary>>}), Reason) || Name <- Names],
    Suspended =:= true andalso erlang:resume_process(Owner),
    none;
do(Seer, Base, {Kind, #{at := At, sup := Sup} = Step}) ->
    sleep_until(Base + At * ?TICK),
    Pid = ask(Seer, {pid, Sup}),
    {_, Ref} = spawn_monitor(fun() -> exit({answer, catch call(Kind, Seer, Pid, Step)}) end),
    Ref.

leave(Pid, Reason) when is_pid(Pid) ->
    Ref = monitor(process, Pid),
    Pid ! {leave, Reason},
    receive {'DOWN', Ref, process, Pid, _} -> ok end;
leave(_, _) ->
    ok.

call(_, _, Pid, _) when not is_pid(Pid) ->
    <<"gone">>;
call(start, Seer, Pid, #{sup := Sup, child := Child}) ->
    word(supervisor:start_child(Pid, child_spec(Seer, Sup, Child)));
call(call, _, Pid, #{request := <<"terminate">>, name := Name}) ->
    word(supervisor:terminate_child(Pid, Name));
call(call, _, Pid, #{request := <<"restart">>, name := Name}) ->
    word(supervisor:restart_child(Pid, Name));
call(call, _, Pid, #{request := <<"delete">>, name := Name}) ->
    word(supervisor:delete_child(Pid, Name)).

word(ok) -> <<"ok">>;
word({ok, _}) -> <<"ok">>;
word({error, {already_started, _}}) -> <<"already_started">>;
word({error, {bad_combination, _}}) -> <<"refused">>;
word({error, Word}) when Word =:= not_found; Word =:= running; Word =:= restarting;
                         Word =:= already_present -> atom_to_binary(Word);
word({error, {failed, _}}) -> <<"failed">>;
word({error, failed}) -> <<"failed">>;
word({error, {shutdown, _}}) -> <<"failed">>;
word({error, {{shutdown, _}, _}}) -> <<"failed">>.

answer(Ref) ->
    receive
        {'DOWN', Ref, process, _, {answer, Word}} when is_binary(Word) -> Word;
        {'DOWN', Ref, process, _, {answer, {'EXIT', _}}} -> <<"gone">>
    after 0 -> <<"unanswered">>
    end.

look(Path, Pid) ->
    case is_process_alive(Pid) of
        false -> [];
        true ->
            Children = lists:reverse(supervisor:which_children(Pid)),
            Counts = [proplists:get_value(Key, supervisor:count_children(Pid))
                      || Key <- [specs, active, supervisors, workers]],
            [[Path, [[Name, status(Is)] || {Name, Is, _, _} <- Children], Counts]
             | lists:append([look(<<Path/binary, $/, Name/binary>>, Is)
                             || {Name, Is, supervisor, _} <- Children, is_pid(Is)])]
    end.

status(Pid) when is_pid(Pid) -> <<"running">>;
status(undefined) -> <<"stopped">>;
status(restarting) -> <<"restarting">>.

sleep_until(Instant) ->
    timer:sleep(max(0, Instant - erlang:monotonic_time(millisecond))).

%% The tree

init(Init) ->
    {ok, Init}.

start_node(Seer, Path, {w, #{fails := Fails}} = Node) ->
    Number = ask(Seer, {number, Path}),
    case lists:member(Number, Fails) of
        true -> ask(Seer, {note, [<<"f">>, Path, Number]}), {error, failed};
        false ->
            {ok, Pid} = proc_lib:start_link(?MODULE, worker, [self(), Seer, Path, Number, Node]),
            ask(Seer, {started, <<"s">>, <<"e">>, Path, Number, Pid}),
            {ok, Pid}
    end;
start_node(Seer, Path, {s, Sup}) ->
    Number = ask(Seer, {number, {s, Path}}),
    #{strategy := Strategy, intensity := Intensity, period := Period, auto_shutdown := Auto,
      children := Children} = Sup,
    Flags = #{strategy => binary_to_atom(Strategy), intensity => Intensity, period => Period,
              auto_shutdown => binary_to_atom(Auto)},
    case supervisor:start_link(?MODULE, {Flags, [child_spec(Seer, Path, Child) || Child <- Children]}) of
        {ok, Pid} -> ask(Seer, {started, <<"S">>, <<"E">>, Path, Number, Pid}), {ok, Pid};
        {error, Reason} -> ask(Seer, {note, [<<"F">>, Path, Number]}), {error, Reason}
    end.

child_spec(Seer, Path, {Kind, #{name := Name, restart := Restart, significant := Significant} = Node}) ->
    #{id => Name, restart => binary_to_atom(Restart), significant => Significant,
      start => {?MODULE, start_node, [Seer, <<Path/binary, $/, Name/binary>>, {Kind, Node}]},
      type => case Kind of w -> worker; s -> supervisor end,
      shutdown => shutdown(Node)}.

shutdown(#{shutdown := <<"brutal">>}) -> brutal_kill;
shutdown(#{shutdown := Ticks}) -> Ticks * ?TICK;
shutdown(#{}) -> infinity.

worker(Parent, Seer, Path, Number, {w, #{hang := Hang}}) ->
    process_flag(trap_exit, true),
    proc_lib:init_ack({ok, self()}),
    work(Parent, Seer, Path, Number, Hang).

work(Parent, Seer, Path, Number, Hang) ->
    receive
        {leave, Reason} ->
            ask(Seer, {ended, Path, Number, self(), Reason}),
            exit(reason(Reason));
        {'EXIT', Parent, Reason} when not Hang ->
            ask(Seer, {ended, Path, Number, self(), atom_to_binary(Reason)}),
            exit(Reason);
        {'EXIT', Parent, _} ->
            work(Parent, Seer, Path, Number, Hang)
    end.

reason(<<"error">>) -> told_to;
reason(<<"normal">>) -> normal;
reason(<<"shutdown">>) -> shutdown;
reason(<<"shutdown_detail">>) -> {shutdown, detail}.

%% The one who sees: everything is told to it before it has an effect, but for ends by force and the ends of
%% supervisors, which its monitors tell.

ask(Seer, What) ->
    Ref = monitor(process, Seer),
    Seer ! {ask, self(), Ref, What},
    receive
        {Ref, Answer} -> demonitor(Ref, [flush]), Answer;
        {'DOWN', Ref, process, Seer, Wrong} -> exit({seer, Wrong})
    end.

see(State = #{monitors := Monitors, told := Told}) ->
    receive
        {ask, From, Ref, stop} ->
            From ! {Ref, {lists:reverse(maps:get(log, State)), maps:get(late, State)}};
        {ask, From, Ref, What} ->
            {Answer, NewState} = seen(What, State),
            From ! {Ref, Answer},
            see(NewState);
        {'DOWN', Ref, process, Pid, Reason} when is_map_key(Ref, Monitors), not is_map_key(Pid, Told) ->
            {Ended, Path, Number} = maps:get(Ref, Monitors),
            see(note([Ended, Path, Number, atom_to_binary(Reason)], State));
        {'DOWN', _, process, _, _} ->
            see(State)
    end.

seen({pid, Path}, State = #{pids := Pids}) ->
    Pid = maps:get(Path, Pids, none),
    {case is_pid(Pid) andalso is_process_alive(Pid) of true -> Pid; false -> none end, State};
seen({number, Key}, State = #{starts := Starts}) ->
    Number = maps:get(Key, Starts, 0) + 1,
    {Number, State#{starts := Starts#{Key => Number}}};
seen({note, Words}, State) ->
    {ok, note(Words, State)};
seen({started, Started, Ended, Path, Number, Pid}, State = #{pids := Pids, monitors := Monitors}) ->
    Ref = monitor(process, Pid),
    {ok, note([Started, Path, Number],
              State#{pids := Pids#{Path => Pid}, monitors := Monitors#{Ref => {Ended, Path, Number}}})};
seen({ended, Path, Number, Pid, Reason}, State = #{told := Told}) ->
    {ok, note([<<"e">>, Path, Number, Reason], State#{told := Told#{Pid => true}})}.

note(Words, State = #{base := Base, log := Log, late := Late}) ->
    Millis = erlang:monotonic_time(millisecond) - Base,
    Texts = [text(Word) || Word <- [Millis div ?TICK | Words]],
    State#{log := [iolist_to_binary(lists:join($\s, Texts)) | Log],
           late := max(Late, Millis rem ?TICK)}.

text(Word) when is_integer(Word) -> integer_to_binary(Word);
text(Word) -> Word.

%% JSON, of what a sight is made of

json(Map) when is_map(Map) ->
    Members = [[json(atom_to_binary(Key)), $:, json(Value)] || {Key, Value} <- maps:to_list(Map)],
    [${, lists:join($,, Members), $}];
json(List) when is_list(List) -> [$[, lists:join($,, [json(Item) || Item <- List]), $]];
json(Word) when is_atom(Word) -> atom_to_binary(Word);
json(Number) when is_integer(Number) -> integer_to_binary(Number);
json(Text) when is_binary(Text) -> [$", Text, $"].
