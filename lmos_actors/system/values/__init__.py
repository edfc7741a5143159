"""Values in files: delays, distributions, paths, schemas, and their comparison."""

from lmos_actors._late import late

with late(__name__):
    from ._delay_words import (
        delay_in as delay_in,
    )
    from ._dist import (
        LONGEST as LONGEST,
        Drawn as Drawn,
        draw as draw,
        is_time as is_time,
        number_type as number_type,
        problem_at as problem_at,
        problem_of as problem_of,
        problem_of_delay as problem_of_delay,
        sampler as sampler,
    )
    from ._exceptions import (
        NOT_YET as NOT_YET,
        error_names as error_names,
        exception_class as exception_class,
        exception_names as exception_names,
    )
    from ._json_schema import (
        schema_misfits as schema_misfits,
        schema_problems as schema_problems,
    )
    from ._paths import (
        path_problem as path_problem,
        pick as pick,
        regex_problem as regex_problem,
        select as select,
    )
    from ._schemas import (
        ANYTHING as ANYTHING,
        Schema as Schema,
        along as along,
        data_path as data_path,
        is_late as is_late,
        is_numeric as is_numeric,
        is_textual as is_textual,
        is_whole_late as is_whole_late,
        may_contain as may_contain,
        misfits as misfits,
        unknown_members as unknown_members,
    )
    from ._values import (
        holds as holds,
        is_shown_whole as is_shown_whole,
        same as same,
        show as show,
        texts_at as texts_at,
    )
