# Sourced by up, review and down: which pilot, and who carries it out.
#
# Sets `project`, `number`, `here` and `root`, takes `-p NAME` off the arguments, and defines
# `compose`.
# shellcheck shell=sh
here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
root=$(dirname -- "$here")
# Paths in compose.yaml are relative to it, and docker-compose 1.29 reads the
# seccomp profile relative to where it was started.
cd "$root" || exit

say() { echo "$(basename -- "$0"): $*" >&2; }
fail() {
    say "$*"
    exit 1
}

case " $* " in
*" --help "* | *" -h "*)
    # What stands at the top of each.
    sed -n -e '1d' -e '/^#/!q' -e 's/^# \{0,1\}//p' "$here/$(basename -- "$0")"
    exit
    ;;
esac

# A setting: from the environment, else from .env.
of_file() { sed -n "s/^$1=//p" .env | tail -n 1; }
setting() {
    eval "value=\${$1-}"
    # shellcheck disable=SC2154
    echo "${value:-$(of_file "$1")}"
}

project=$(setting COMPOSE_PROJECT_NAME)
left=$#
while [ "$left" -gt 0 ]; do
    if [ "$1" = -p ]; then
        [ "$left" -gt 1 ] || fail "-p needs a name"
        project=$2 left=$((left - 2))
        shift 2
    else
        set -- "$@" "$1"
        left=$((left - 1))
        shift
    fi
done
case $project in
'' | *[!a-z0-9_-]* | [_-]*) fail "\`$project\` cannot name a pilot: write a-z, 0-9, - and _" ;;
esac
# Its gateway says it in every record.
COMPOSE_PROJECT_NAME=$project
export COMPOSE_PROJECT_NAME

docker version >/dev/null 2>&1 || fail "Docker does not answer; is it installed, running, and may you use it?"
if docker compose version >/dev/null 2>&1; then
    # It knows one more wall than 1.29 does.
    compose() { docker compose -p "$project" -f compose.yaml -f compose/private-cgroup.yaml "$@"; }
elif command -v docker-compose >/dev/null 2>&1; then
    compose() { docker-compose -p "$project" "$@"; }
else
    fail "there is neither \`docker compose\` nor docker-compose"
fi

# Its container of a service, also one that has ended; nothing if there is none.
container() {
    docker ps -aq --filter "label=com.docker.compose.project=$project" --filter "label=com.docker.compose.service=$1" | head -n 1
}
is_running() { [ "$(docker inspect -f '{{.State.Running}}' "$1" 2>/dev/null)" = true ]; }

# A pilot of the same name from another clone is not ours to touch.
stands=$(container gateway)
if [ -n "$stands" ]; then
    from=$(docker inspect -f '{{index .Config.Labels "com.docker.compose.project.working_dir"}}' "$stands")
    # One that is gone needs somebody else to clear up after it.
    [ ! -e "$from/compose.yaml" ] || [ "$(readlink -f -- "$from")" = "$(readlink -f -- "$root")" ] ||
        fail "$project was started from $from; go there, or give this one another name with -p NAME"
fi

# The number of this pilot's networks, if they are there: compose makes them anew
# under any other.
number=$(docker network inspect -f '{{range .IPAM.Config}}{{.Subnet}}{{end}}' "${project}_inside" 2>/dev/null |
    sed -n 's/^198\.19\.\([0-9]*\)\.0\/29$/\1/p')
if [ -n "$number" ]; then
    PILOT_NUMBER=$number
    export PILOT_NUMBER
fi
