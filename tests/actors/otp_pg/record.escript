#!/usr/bin/env escript
%%! +S 1:1
%% Plays programs of joins, leaves and ends against OTP's pg, and writes who was in which group after each step.
%%
%% record.escript PROGRAMS SEEN: PROGRAMS holds one Erlang term per program, a list of {Verb, Process, Group}.
%% SEEN gets one JSON line per program: for each step the answer, the members of each group, each once, and
%% the changes that a monitor of the whole scope was told, each once per process.
-mode(compile).
-export([main/1]).

main([In, Out]) ->
    {ok, Programs} = file:consult(In),
    ok = file:write_file(Out, [[json(play(Program)), $\n] || Program <- Programs]).

play(Steps) ->
    {ok, Scope} = pg:start(scope),
    {Monitor, _} = pg:monitor_scope(scope),
    Names = [a, b, c],
    Pids = maps:from_list([{Name, spawn(fun() -> receive stop -> ok end end)} || Name <- Names]),
    Seen = [begin
                Answer = do(Step, Pids),
                sys:get_state(Scope),
                [Answer, members(Pids), changes(Monitor, Pids)]
            end || Step <- Steps],
    [exit(Pid, kill) || Pid <- maps:values(Pids)],
    exit(Scope, kill),
    receive after 1 -> ok end,
    Seen.

do({join, Name, Group}, Pids) -> pg:join(scope, Group, maps:get(Name, Pids));
do({leave, Name, Group}, Pids) -> pg:leave(scope, Group, maps:get(Name, Pids));
do({crash, Name, _}, Pids) -> gone(maps:get(Name, Pids), kill);
do({stop, Name, _}, Pids) -> gone(maps:get(Name, Pids), stop).

gone(Pid, How) ->
    Ref = monitor(process, Pid),
    case How of kill -> exit(Pid, kill); stop -> Pid ! stop end,
    receive {'DOWN', Ref, process, _, _} -> ok end.

members(Pids) ->
    [[Group, lists:usort([name(Pid, Pids) || Pid <- pg:get_members(scope, Group)])]
     || Group <- lists:sort(pg:which_groups(scope))].

changes(Monitor, Pids) ->
    receive {Monitor, What, Group, Who} ->
        [[What, Group, lists:usort([name(Pid, Pids) || Pid <- Who])] | changes(Monitor, Pids)]
    after 0 -> [] end.

name(Pid, Pids) ->
    [Name] = [Name || {Name, P} <- maps:to_list(Pids), P =:= Pid],
    Name.

json(List) when is_list(List) -> [$[, lists:join($,, [json(Item) || Item <- List]), $]];
json(Atom) -> [$", atom_to_list(Atom), $"].
