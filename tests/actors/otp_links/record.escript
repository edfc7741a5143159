#!/usr/bin/env escript
%%! +S 1:1
%% Plays programs of links, monitors and exits on real Erlang processes, and writes what they were told.
%%
%% record.escript PROGRAMS SEEN: PROGRAMS holds one Erlang term per program (programs.py writes them), SEEN
%% gets one JSON line per program: for each step who died of what, and who of those alive was told what.
%% A step is over when every process has answered three pings in a row.
-module(record).
-mode(compile).
-export([main/1, worker/2]).

main([In, Out]) ->
    logger:set_primary_config(level, none),
    {ok, Programs} = file:consult(In),
    ok = file:write_file(Out, [[json(play(Traps, Steps)), $\n] || {Traps, Steps} <- Programs]).

play(Traps, Steps) ->
    Numbers = lists:seq(0, length(Traps) - 1),
    Pids = maps:from_list([{Number, spawn(?MODULE, worker, [Trap, #{}])}
                           || {Number, Trap} <- lists:zip(Numbers, Traps)]),
    [monitor(process, Pid) || Pid <- maps:values(Pids)],
    {Seen, Alive, _} = lists:foldl(fun step/2, {[], Numbers, Pids}, Steps),
    [exit(maps:get(Number, Pids), kill) || Number <- Alive],
    [receive {'DOWN', _, process, _, killed} -> ok end || _ <- Alive],
    lists:reverse(Seen).

step(Step, {Seen, Alive, Pids}) ->
    case lists:member(element(2, Step), Alive) of
        true -> do(Step, Pids);
        false -> ok
    end,
    Dead = settle(Pids, Alive, 3, []),
    Left = Alive -- [Number || {Number, _} <- Dead],
    Told = [[name(Number), Message]
            || Number <- Left, Message <- told(maps:get(Number, Pids), Pids)],
    {[[lists:sort([[name(Number), text(Reason)] || {Number, Reason} <- Dead]), lists:sort(Told)] | Seen],
     Left, Pids}.

do({task, Number, Reason}, Pids) ->
    Pid = maps:get(Number, Pids),
    {_, Ref} = spawn_monitor(fun() -> link(Pid), exit(Reason) end),
    receive {'DOWN', Ref, process, _, _} -> ok end;
do({exit, Number, Reason}, Pids) ->
    maps:get(Number, Pids) ! {exit, Reason};
do({Verb, Number, Other}, Pids) ->
    maps:get(Number, Pids) ! {Verb, maps:get(Other, Pids)}.

%% Who has died once all the others are quiet.
settle(_, _, 0, Dead) ->
    Dead;
settle(Pids, Alive, Rounds, Dead) ->
    timer:sleep(1),
    case [{Number, Reason} || Number <- Alive, {died, Reason} <- [ping(maps:get(Number, Pids))]] of
        [] -> settle(Pids, Alive, Rounds - 1, Dead);
        More -> settle(Pids, Alive -- [Number || {Number, _} <- More], 3, Dead ++ More)
    end.

ping(Pid) ->
    Pid ! {ping, self()},
    receive
        {pong, Pid} -> alive;
        {'DOWN', _, process, Pid, Reason} -> {died, Reason}
    end.

told(Pid, Pids) ->
    Pid ! {tell, self()},
    receive {told, Pid, Messages} -> [[Kind, who(From, Pids), text(Reason)] || {Kind, From, Reason} <- Messages] end.

who(Pid, Pids) ->
    case [Number || {Number, One} <- maps:to_list(Pids), One =:= Pid] of
        [Number] -> name(Number);
        [] -> <<"task">>
    end.

name(Number) -> <<($a + Number)>>.

text({shutdown, Detail}) -> iolist_to_binary(["shutdown: ", integer_to_list(Detail)]);
text({bug, Number}) -> iolist_to_binary(["bug ", integer_to_list(Number)]);
text(Atom) -> atom_to_binary(Atom).

%% One process

worker(Trap, Monitors) ->
    process_flag(trap_exit, Trap),
    loop(Monitors, []).

loop(Monitors, Told) ->
    receive
        {link, Pid} ->
            try link(Pid) catch error:noproc -> exit(noproc) end,
            loop(Monitors, Told);
        {unlink, Pid} ->
            unlink(Pid),
            loop(Monitors, Told);
        {monitor, Pid} ->
            loop(Monitors#{Pid => monitor(process, Pid)}, Told);
        {demonitor, Pid} ->
            is_map_key(Pid, Monitors) andalso demonitor(maps:get(Pid, Monitors), [flush]),
            loop(maps:remove(Pid, Monitors), Told);
        {exit, Reason} ->
            exit(Reason);
        {'EXIT', Pid, Reason} ->
            loop(Monitors, [{<<"exit">>, Pid, Reason} | Told]);
        {'DOWN', _, process, Pid, Reason} ->
            loop(Monitors, [{<<"down">>, Pid, Reason} | Told]);
        {ping, From} ->
            From ! {pong, self()},
            loop(Monitors, Told);
        {tell, From} ->
            From ! {told, self(), Told},
            loop(Monitors, [])
    end.

%% JSON of lists and of texts that need no escape

json(Text) when is_binary(Text) -> [$", Text, $"];
json(List) -> [$[, lists:join($,, [json(One) || One <- List]), $]].
