# SPDX-License-Identifier: Apache-2.0
# cmake -D ROOMS=<build dir>/rooms.txt -D SCRATCH=<folder of its own> -P layering_test.cmake
# layering.cmake fails for what it forbids, and only for that: each case is one source with one include, first in made-up
# rooms, then in this build's own, whose walls it names.
cmake_minimum_required(VERSION 3.25)

set(made_up ${SCRATCH}/rooms.txt)
file(WRITE ${made_up}
     "low|worker/low|TRUE|||\n"
     "plan|operator/plan|TRUE|low|plan.h,parts/shape.h|tool\n"
     "plan_parts|operator/plan/inner|TRUE|low||\n"
     "tool|operator/plan/tool||plan||\n"
     "user|operator/user|TRUE|plan||\n")

set(wrong 0)
# One source of a room includes one header. `reason` is a part of what must be said; none: the include is right.
function(check rooms file include reason)
  file(REMOVE_RECURSE ${SCRATCH}/source)
  file(WRITE ${SCRATCH}/source/${file} "#include ${include}\n")
  execute_process(COMMAND ${CMAKE_COMMAND} -D ROOT=${SCRATCH}/source -D ROOMS=${rooms} -P ${CMAKE_CURRENT_FUNCTION_LIST_DIR}/layering.cmake
                  RESULT_VARIABLE code OUTPUT_VARIABLE said ERROR_VARIABLE said)
  if(reason)
    string(FIND "${said}" "${reason}" at)
  endif()
  if((reason AND (code EQUAL 0 OR at EQUAL -1)) OR (NOT reason AND NOT code EQUAL 0))
    message("${file} with ${include}: expected \"${reason}\", got exit code ${code} and\n${said}")
    math(EXPR wrong "${wrong} + 1")
    set(wrong ${wrong} PARENT_SCOPE)
  endif()
endfunction()

check(${made_up} operator/user/a.cpp "\"operator/plan/plan.h\"" "")
check(${made_up} operator/user/a.cpp "\"operator/plan/parts/shape.h\"" "")
check(${made_up} operator/user/a.cpp "\"operator/plan/layout.h\"" "room 'plan' shows others only plan.h")
check(${made_up} operator/user/a.cpp "\"operator/plan/shape.h\"" "room 'plan' shows others only plan.h")
check(${made_up} operator/plan/tool/a.cpp "\"operator/plan/layout.h\"" "")
check(${made_up} operator/plan/a.cpp "\"operator/plan/layout.h\"" "")
check(${made_up} operator/plan/a.cpp "\"worker/low/any.h\"" "")
check(${made_up} operator/plan/a.cpp "\"operator/plan/inner/a.h\"" "room 'plan' may not include room 'plan_parts'")
check(${made_up} worker/low/a.cpp "\"operator/user/a.h\"" "room 'low' may not include room 'user'")
check(${made_up} worker/low/a.cpp "<fstream>" "room 'low' is pure")
check(${made_up} worker/low/a.cpp "<yaml-cpp/yaml.h>" "may include <yaml-cpp/")
check(${made_up} worker/other/a.cpp "<vector>" "belongs to no room")

# The walls of this build: a room, the folder of the include's room, what is said.
foreach(wall
    "worker/schedule|worker/engine/x.h|room 'schedule' may not include room 'engine'"
    "worker/protocol|worker/control/x.h|room 'protocol' may not include room 'control'"
    "operator/adaptation/retune|operator/controller/reconcile/x.h|room 'retune' may not include room 'reconcile'"
    "operator/adaptation/retune|operator/adaptation/shares/x.h|room 'retune' may not include room 'shares'"
    "operator/adaptation/replace|operator/adaptation/repartition/x.h|room 'replace' may not include room 'repartition'"
    "operator/adaptation/gate|operator/facts/x.h|room 'gate' may not include room 'facts'"
    "operator/adaptation|operator/controller/reconcile/x.h|room 'adaptation' may not include room 'reconcile'"
    "operator/controller/reconcile/plans|operator/adaptation/tick_parts.h|room 'adaptation' shows others only adapt.h"
    "operator/planner|operator/adaptation/retune/x.h|room 'planner' may not include room 'retune'"
    "operator/adaptation|operator/controller/reconcile/pass/x.h|room 'adaptation' may not include room 'reconcile_pass'"
    "operator/controller/reconcile/plans|operator/planner/layout.h|room 'planner' shows others only plan.h"
    "operator/controller/reconcile/plans|operator/planner/tool/check.h|room 'reconcile_plans' may not include room 'planner_tool'"
    "operator/controller/reconcile/plans|operator/controller/reconcile/status/x.h|room 'reconcile_plans' may not include room 'reconcile_status'"
    "operator/controller/reconcile/lifecycle|operator/controller/reconcile/plans/x.h|room 'reconcile_lifecycle' may not include room 'reconcile_plans'"
    "operator/controller/reconcile/lifecycle|operator/controller/reconcile/status/x.h|room 'reconcile_lifecycle' may not include room 'reconcile_status'"
    "operator/controller/reconcile/lifecycle|operator/adaptation/adapt.h|room 'reconcile_lifecycle' may not include room 'adaptation'"
    "operator/cli|operator/controller/x.h|room 'cli' may not include room 'controller'"
    "operator/cli|operator/control/x.h|room 'cli' may not include room 'control_server'"
    "operator/controller/reconcile|operator/kube/x.h|room 'reconcile' may not include room 'kube'")
  string(REPLACE "|" ";" parts "${wall}")
  list(GET parts 0 folder)
  list(GET parts 1 header)
  list(GET parts 2 reason)
  file(STRINGS ${ROOMS} known REGEX "\\|${folder}\\|")
  if(known)  # else a program that this build leaves out
    check(${ROOMS} ${folder}/a.cpp "\"${header}\"" "${reason}")
  endif()
endforeach()

if(wrong)
  message(FATAL_ERROR "layering_test: ${wrong} cases are wrong")
endif()
message("layering_test: all cases are as expected")
