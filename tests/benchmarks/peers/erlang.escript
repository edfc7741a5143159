%% Work on processes of Erlang/OTP: `escript erlang.escript WORK N` prints the seconds that N units took.
-mode(compile).
-define(MANY, 1000).

main([Work, Count]) ->
    N = list_to_integer(Count),
    io:format("~p~n", [work(Work, N)]).

work("tell", N) -> told(spawn(fun() -> echo(0) end), N);
work("ask", N) -> asked(spawn(fun() -> echo(0) end), N);
work("fan", N) ->
    All = [spawn(fun() -> echo(0) end) || _ <- lists:seq(1, ?MANY)],
    seconds(fun() -> fan(All, N div ?MANY) end);
work("ring", N) ->
    Self = self(),
    Last = spawn(fun() -> receive {next, First} -> hop(First, Self) end end),
    First = lists:foldl(fun(_, Next) -> spawn(fun() -> hop(Next, Self) end) end, Last, lists:seq(2, ?MANY)),
    Last ! {next, First},
    seconds(fun() -> First ! N, receive done -> ok end end);
work("spawn", N) ->
    seconds(fun() -> ask(lists:last([spawn(fun() -> echo(0) end) || _ <- lists:seq(1, N)]), 1) end);
work("memory", N) ->
    Before = erlang:memory(total),
    All = [spawn(fun() -> echo(0) end) || _ <- lists:seq(1, N)],
    ask(lists:last(All), 1),
    (erlang:memory(total) - Before) / N;
work("far_" ++ Verb, N) ->
    os:cmd("epmd -daemon"),
    Name = list_to_atom("lmos_bench_" ++ os:getpid()),
    {ok, _} = net_kernel:start([Name, shortnames]),
    {ok, Peer, Node} = peer:start(#{name => peer:random_name()}),
    Code = code(),
    [{module, _} = rpc:call(Node, code, load_binary, [Module, "far", Binary]) || {Module, Binary} <- Code],
    Far = spawn(Node, far, echo, [0]),
    Seconds = case Verb of "ask" -> asked(Far, N); "tell" -> told(Far, N) end,
    peer:stop(Peer),
    Seconds.

%% The module of the far process, compiled here, as an escript's own functions are not to be had elsewhere.
code() ->
    Forms = [
        "-module(far).",
        "-export([echo/1]).",
        "echo(Count) -> receive {ask, From, Value} -> From ! {answer, Value}, echo(Count);"
        " {count, From} -> From ! {count, Count}, echo(Count); _ -> echo(Count + 1) end."
    ],
    Parsed = [begin {ok, Tokens, _} = erl_scan:string(F), {ok, Form} = erl_parse:parse_form(Tokens), Form end || F <- Forms],
    {ok, Module, Binary} = compile:forms(Parsed),
    [{Module, Binary}].

echo(Count) ->
    receive
        {ask, From, Value} -> From ! {answer, Value}, echo(Count);
        {count, From} -> From ! {count, Count}, echo(Count);
        _ -> echo(Count + 1)
    end.

hop(Next, End) ->
    receive
        0 -> End ! done, hop(Next, End);
        Hops -> Next ! Hops - 1, hop(Next, End)
    end.

ask(Pid, Value) ->
    Pid ! {ask, self(), Value},
    receive {answer, Answer} -> Answer end.

asked(Pid, N) ->
    ask(Pid, 0),
    seconds(fun() -> ask_all(Pid, N) end).

ask_all(_, 0) -> ok;
ask_all(Pid, N) -> ask(Pid, N), ask_all(Pid, N - 1).

told(Pid, N) ->
    seconds(fun() ->
        tell_all(Pid, N),
        Pid ! {count, self()},
        receive {count, N} -> ok end
    end).

tell_all(_, 0) -> ok;
tell_all(Pid, N) -> Pid ! N, tell_all(Pid, N - 1).

fan(_, 0) -> ok;
fan(All, Times) ->
    Self = self(),
    [Pid ! {ask, Self, Times} || Pid <- All],
    [receive {answer, Answer} -> Answer end || _ <- All],
    fan(All, Times - 1).

seconds(Fun) ->
    Began = erlang:monotonic_time(),
    Fun(),
    erlang:convert_time_unit(erlang:monotonic_time() - Began, native, nanosecond) / 1.0e9.
