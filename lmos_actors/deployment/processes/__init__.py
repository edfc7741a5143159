"""The processes that run groups of agents: how they are started, watched and replaced."""

from lmos_actors._late import late

with late(__name__):
    from ._control import (
        PRIVATE as PRIVATE,
        AlreadyRunning as AlreadyRunning,
        Controls as Controls,
        UnixNetwork as UnixNetwork,
        controls_of as controls_of,
        running_controls as running_controls,
    )
    from ._group import (
        Member as Member,
        ProcessEnded as ProcessEnded,
        how_ended as how_ended,
    )
    from ._known_stores import (
        KnownStores as KnownStores,
    )
    from ._launcher import (
        Launcher as Launcher,
    )
    from ._launcher_agent import (
        LauncherAgent as LauncherAgent,
        launcher_tree as launcher_tree,
        launcher_url as launcher_url,
        open_launcher as open_launcher,
    )
    from ._local_place import (
        DESCRIPTORS_EACH as DESCRIPTORS_EACH,
        FEW_DESCRIPTORS as FEW_DESCRIPTORS,
        GROUP_MODULES as GROUP_MODULES,
        LocalPlace as LocalPlace,
        LocalProcess as LocalProcess,
    )
    from ._log_files import (
        Follower as Follower,
        LineSplitter as LineSplitter,
        LogFiles as LogFiles,
        LogLine as LogLine,
    )
    from ._pause import (
        kill_with_us as kill_with_us,
    )
    from ._place import (
        Order as Order,
        Place as Place,
        Process as Process,
    )
    from ._plan import (
        CANNOT_START as CANNOT_START,
        GroupPlan as GroupPlan,
        LaunchPlan as LaunchPlan,
        changes_between as changes_between,
        in_order as in_order,
    )
    from ._ray_place import (
        RayPlace as RayPlace,
    )
    from ._recent_lines import (
        RecentLines as RecentLines,
    )
    from ._reload import (
        reload_changed as reload_changed,
    )
    from ._status import (
        GroupStatus as GroupStatus,
        LauncherStatus as LauncherStatus,
        ReplicaStatus as ReplicaStatus,
        RolloutStatus as RolloutStatus,
        State as State,
        Step as Step,
    )
