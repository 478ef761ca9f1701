// Exhaustive small worlds: runs a tiny program of references (up to three workers, one object, two shares, at most one
// cut or one death) in every order in which its events can happen, and checks what docs/rref.md promises in each state.
//
// How. One execution is one World, taken over by hand after everybody has joined and is connected with everybody. At
// each step one of the enabled choices is taken: the next thing of any direction of any connection arrives; a waiting
// handler runs; a worker's timers fire (words that waited for company go out, a broken link is dialled again); the
// program does an operation or drops a reference that it holds; once, two workers are cut off from each other, or a
// worker dies and, later, is declared lost. To try another choice the world is made anew and led along the same
// choices up to that point: the same choices lead to the same state.
//
// What is not a choice, because nobody could tell: what arrives at the coordinator, and its heartbeat answers, do so at
// once (what it says of losses is delayed anyhow); so does the news that a dial was accepted, that a peer has
// closed a connection in good order, or that one's own close() is done. Nobody's dial reaches a dead worker. Long
// timers (acknowledgements, leases, timeouts) are out of the clock's reach.
//
// Two paths to the same state need only be continued once. A state is compared by two independent 64-bit hashes over:
// each worker's owned objects, forks, used references, waiting handlers and words, losses heard and what still waits
// for them; everything in flight, by direction, with contents; the program's position; the fault. While a link
// is being repaired after a cut, messages may sit where nobody can look: then what the cut took from the wire, and how
// the two workers have come to what they queued since, is hashed too. Left out: the time; sequence numbers, credit and
// epochs of links, and the numbers of control messages (links deliver once and in order, which is checked elsewhere);
// the order of words that wait for company.
//
// Two choices that change different workers lead to the same state in either order, so only one order is tried, unless
// the state between them can be reached in no other way. (These are sleep sets: every state is still reached, by fewer
// ways.) Of two equal operations the first happens first.
//
// One thread; no other exploration at the same time on that thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <holdfast/wire/message.h>

namespace holdfast::sim {

struct Operation {
  enum class What {
    create,  // `by` makes the object on `to`, which may be itself
    share,   // `by` sends a reference that it holds to `to`
    fetch,   // `by` fetches the object, through a reference that it holds
  };
  What what;
  uint32_t by = 0;
  uint32_t to = 0;
  friend bool operator==(const Operation&, const Operation&) = default;
};

// A program. Each operation happens once, as soon or as late as it can; one that needs a reference is skipped if
// `by` has dropped all of its own. Every reference is dropped at some moment after it was got.
struct Scenario {
  std::string name;
  uint32_t workers = 2;
  uint32_t owner = 0;  // of the object
  std::vector<Operation> program;

  bool cut = false;  // once, any pair, at any moment
  // After a cut, every order of noticing it, of dials and of greetings too. Otherwise both notice it at once, and a
  // dial that arrives, at any moment, brings the link up.
  bool handshakes = false;
  std::optional<uint32_t> death;  // of this worker, at any moment

  // The search ends there, incomplete.
  uint64_t states_max = 100'000'000;
  // To see that violations are found. The network loses one message of this kind for good, at any moment.
  std::optional<Kind> swallow;
  // ... and a promise that nobody gave.
  bool expect_never_freed = false;

  // "none", "cut", "death of worker1"
  std::string fault() const;
};

struct ExploreReport {
  std::string scenario;
  std::string fault;
  uint64_t states = 0;       // different ones
  uint64_t transitions = 0;  // choices taken, from different states
  uint64_t executions = 0;   // worlds made
  uint64_t final_states = 0;
  size_t path_longest = 0;  // choices
  bool complete = true;     // false: states_max was reached
  uint64_t violations = 0;  // states in which something is wrong
  // Of the violation with the shortest path, if there is one.
  std::string violation;
  std::vector<std::string> trace;

  bool good() const { return complete && violations == 0; }
};

ExploreReport explore(const Scenario& scenario);

// Every program, without a fault, with a cut, and with the death of each worker. `quick`: those that take seconds.
std::vector<Scenario> small_worlds(bool quick = false);

// Lines of a table for people.
std::string explore_table_head();
std::string explore_table_row(const ExploreReport& report);

}  // namespace holdfast::sim
