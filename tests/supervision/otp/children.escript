#!/usr/bin/env escript
%% A gen_server that starts a linked supervisor, and what becomes of either. Prints one line for each story.
-mode(compile).
-export([init/1, handle_cast/2, handle_call/3, handle_info/2, terminate/2]).

main([]) ->
    logger:set_primary_config(level, none),
    register(diary, spawn(fun() -> diary([]) end)),
    [tell(Name, Restart, Do) || {Name, Restart, Do} <- stories()].

stories() ->
    [{"a child crashes", permanent, [{crash, a}]},
     {"the agent is stopped", permanent, [terminate]},
     {"the agent crashes", permanent, [{crash, boss}]},
     {"its supervisor gives up", permanent, [{crash, a}, {crash, b}]},
     {"its supervisor gives up, transient", transient, [{crash, a}, {crash, b}]},
     {"the agent is done", transient, [finish]}].

tell(Name, Restart, Do) ->
    process_flag(trap_exit, true),
    {ok, Top} = supervisor:start_link(?MODULE, {top, Restart}),
    settle(),
    take(),
    [begin act(Top, Step), settle() end || Step <- Do],
    Alive = [atom_to_list(N) || N <- [a, b, boss], whereis(N) =/= undefined],
    io:format("~s: ~s | alive: ~s~n", [Name, lists:join(" ", take()), lists:join(" ", Alive)]),
    exit(Top, shutdown),
    receive {'EXIT', Top, _} -> ok end,
    settle(),
    take().

act(_, {crash, Name}) -> gen_server:cast(Name, crash);
act(_, finish) -> gen_server:cast(boss, finish);
act(Top, terminate) -> supervisor:terminate_child(Top, boss).

settle() -> timer:sleep(200).

note(Line) -> diary ! {note, lists:flatten(Line)}, ok.
take() -> diary ! {take, self()}, receive {lines, Lines} -> Lines end.
diary(Lines) ->
    receive
        {note, Line} -> diary([Line | Lines]);
        {take, Pid} -> Pid ! {lines, lists:reverse(Lines)}, diary([]);
        {'DOWN', _, process, _, {boss, _}} -> diary(Lines);
        {'DOWN', _, process, _, Reason} -> diary(["-boss:" ++ kind(Reason) | Lines]);
        {watch, Pid} -> monitor(process, Pid), diary(Lines)
    end.

kind(normal) -> "normal";
kind(shutdown) -> "shutdown";
kind(_) -> "error".

init({top, Restart}) ->
    {ok, {#{intensity => 5}, [#{id => boss, start => {gen_server, start_link, [{local, boss}, ?MODULE, boss, []]},
                                restart => Restart}]}};
init(boss) ->
    diary ! {watch, self()},
    note("+boss"),
    {ok, Kids} = supervisor:start_link(?MODULE, kids),
    {ok, {boss, Kids}};
init(kids) ->
    {ok, {#{intensity => 1, period => 5},
          [#{id => N, start => {gen_server, start_link, [?MODULE, {worker, N}, []]}} || N <- [a, b]]}};
init({worker, N}) ->
    process_flag(trap_exit, true),
    catch unregister(N),
    register(N, self()),
    note("+" ++ atom_to_list(N)),
    {ok, {worker, N}}.

handle_cast(crash, _) -> error(boom);
handle_cast(finish, State) -> {stop, normal, State}.
handle_call(_, _, State) -> {reply, ok, State}.
handle_info(_, State) -> {noreply, State}.
terminate(_, {worker, N}) -> timer:sleep(50), note("-" ++ atom_to_list(N));
terminate(_, _) -> ok.
