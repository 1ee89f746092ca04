------------------------------- MODULE Lake -------------------------------
(* The write protocol of a lake: the catalog's log is the only judge.

   An entry of the log is a compare-and-swap, so here each is one atomic step over `snaps`, `held`, `atts`, `eras`
   and `dels` (that it is one: `Log.tla`). Files are written and deleted by steps of their own. Attempts are taken
   back, and erasures taken over, at ANY time: nothing hangs on a clock. A process may crash at every step; what it
   then does is begin again. `index.md` says what is left out, and why. *)
EXTENDS Naturals, FiniteSets, TLC

CONSTANTS
    Importers, Editors, Erasers, Cleaners, \* processes; one may be in several of them
    Jobs, Names,                           \* of snapshots
    Requests,                              \* of erasures: each is about one person
    Holds,                                 \* whether snapshots are held and released
    MaxToken,                              \* how many tokens there are: no token is used twice
    Without                                \* rules that are left out, to see that each is needed

VARIABLES
    snaps,  \* rows of the catalog: snapshots
    held,   \* which of them have a hold: <<job, name>>
    atts,   \* entries of attempts
    eras,   \* entries of erasures
    dels,   \* entries of deletions
    disk,   \* files that exist
    token,  \* the last token that was given
    pc, mem,\* what each process is about to do, and what it remembers
    proved  \* by request and job: it is recorded that nothing that began up to this token has the person

catalog == <<snaps, held, atts, eras, dels>>
vars == <<snaps, held, atts, eras, dels, disk, token, pc, mem, proved>>

Processes == Importers \cup Editors \cup Erasers \cup Cleaners
Rule(name) == name \notin Without
Nothing == [t |-> 0]
\* A file lies below the token `t`, is made from the one written below `of`, and has the persons `x`.
File(t, of, x) == [t |-> t, of |-> of, x |-> x]
Named == UNION {s.files : s \in snaps}
OfJobs(jobs) == {s \in snaps : s.j \in jobs}
Closed(jobs) == \E e \in eras : e.jobs \cap jobs # {}
Prefix(t) == [t |-> t, files |-> {}]                    \* a deletion of whatever lies below a token
Exactly(files) == IF files = {} THEN {} ELSE {[t |-> 0, files |-> files]}
\* What may not be deleted, by whoever looks at this version of the log.
Protected(f) == \/ f \in Named
                \/ \E a \in atts : a.t = f.t
                \/ \E e \in eras : e.t = f.t

Go(w, to) == pc' = [pc EXCEPT ![w] = to]
Recall(w, what) == mem' = [mem EXCEPT ![w] = what]
Rest(w) == Go(w, "idle") /\ Recall(w, Nothing)

Init == /\ snaps = {} /\ held = {} /\ atts = {} /\ eras = {} /\ dels = {} /\ disk = {} /\ token = 0
        /\ pc = [w \in Processes |-> "idle"] /\ mem = [w \in Processes |-> Nothing]
        /\ proved = [r \in Requests |-> [j \in Jobs |-> 0]]

---------------------------------------------------------------------------
\* Attempts (catalog/attempts.py).

\* Attempt._begin: the claim comes before the first file. `on` are the records that it builds on, `keep` the files
\* of theirs that the new snapshot shares, `own` whether it writes any, `x` whom those have.
Begins(w, j, n, on, keep, own, x) ==
    LET t == token + 1 IN
    /\ pc[w] = "idle" /\ token < MaxToken
    /\ own \/ keep # {}
    /\ \A s \in snaps : <<s.j, s.n>> # <<j, n>>
    /\ Rule("begin-closed") => ~Closed({j})
    /\ token' = t /\ atts' = atts \cup {[t |-> t, j |-> j, on |-> on]}
    /\ Recall(w, [t |-> t, j |-> j, n |-> n, on |-> on,
                  files |-> keep \cup (IF own THEN {File(t, t, x)} ELSE {}), own |-> own, x |-> x])
    /\ Go(w, IF own THEN "write" ELSE "commit")
    /\ UNCHANGED <<snaps, held, eras, dels, disk, proved>>

\* _Import._run_once: a savepoint has everybody; files are shared with a record of the job, or with none.
BeginImport(w) ==
    \E j \in Jobs, n \in Names : \E on \in {{}} \cup {{s} : s \in OfJobs({j})} : \E own \in BOOLEAN :
        LET base == UNION {s.files : s \in on} IN
        \E keep \in {{}, IF Rule("reuse") THEN base ELSE disk} :
            Begins(w, j, n, on, keep, own, Requests)

\* derive (edit, sql --edit, migrate, commit, merge): new files have whom the record's files have. A merge takes a
\* record of another job, and shares its carried files.
BeginEdit(w) ==
    \E j \in Jobs, n \in Names, s \in snaps : \E own \in BOOLEAN :
        \E keep \in {{}, s.files} :
            Begins(w, j, n, {s}, keep, own, UNION {f.x : f \in s.files})

\* UnitWriter, StateTable.replace_files: data, its directory and the tables' logs, synced before the last commit.
Write(w) ==
    /\ pc[w] = "write"
    /\ disk' = disk \cup {File(mem[w].t, mem[w].t, mem[w].x)}
    /\ Go(w, "commit")
    /\ UNCHANGED <<catalog, token, mem, proved>>

Same(s, u) == <<s.j, s.n, s.files>> = <<u.j, u.n, u.files>>  \* the name, and the digest of what it names
Mine(w) == {a \in atts : a.t = mem[w].t}
CanCommit(w) ==
    /\ Rule("fence") => Mine(w) # {}
    /\ Rule("basis") => \A s \in mem[w].on : \E u \in snaps : Same(s, u)
    /\ Rule("name") => \A s \in snaps : <<s.j, s.n>> # <<mem[w].j, mem[w].n>>
    /\ Rule("commit-closed") => ~Closed({mem[w].j})

\* Attempt.commit: the row comes and the attempt goes, in one entry. Its process may not learn of that (an answer that
\* is lost, a directory that can't be synced): then it is where it was, and looks again.
Commit(w) ==
    /\ pc[w] = "commit" /\ CanCommit(w)
    /\ snaps' = snaps \cup {[j |-> mem[w].j, n |-> mem[w].n, by |-> mem[w].t, files |-> mem[w].files,
                             is |-> {f.of : f \in mem[w].files}]}
    /\ atts' = atts \ Mine(w)
    /\ Rest(w) \/ UNCHANGED <<pc, mem>>
    /\ UNCHANGED <<held, eras, dels, disk, token, proved>>

\* Attempt.__exit__, of one that failed, at whatever step: the attempt goes and a deletion of its prefix comes.
End(w) ==
    /\ pc[w] \in {"write", "commit"} /\ Mine(w) # {}
    /\ atts' = atts \ Mine(w) /\ dels' = dels \cup {Prefix(mem[w].t)}
    /\ Rest(w)
    /\ UNCHANGED <<snaps, held, eras, disk, token, proved>>

\* Attempt.__exit__, of one that was taken back; or committed, and did not learn of it.
FindGone(w) ==
    /\ pc[w] \in {"write", "commit"} /\ Mine(w) = {}
    /\ Go(w, "gone")
    /\ UNCHANGED <<catalog, disk, token, mem, proved>>

\* execute_deletion, called by Attempt.__exit__: it looks at the log like everybody else, as its own commit may have been the one.
LookAtOwn(w) ==
    /\ pc[w] = "gone"
    /\ LET own == {f \in disk : f.t = mem[w].t /\ (Rule("own-look") => ~Protected(f))} IN
       IF own = {} THEN Rest(w) ELSE Go(w, "delete") /\ Recall(w, [t |-> mem[w].t, files |-> own])
    /\ UNCHANGED <<catalog, disk, token, proved>>

\* taken_back (settle_attempts, take_back_dead): by anybody, at any time; files are deleted by the deletion, after it.
TakeBack(a) ==
    /\ atts' = atts \ {a} /\ dels' = dels \cup {Prefix(a.t)}
    /\ UNCHANGED <<snaps, held, eras, disk, token, pc, mem, proved>>

---------------------------------------------------------------------------
\* Erasures (erase/erasing.py). A claim says who owns it (`t`), whether it was switched (how often, here), and then which
\* new file stands for which old one.

\* Erasure.take: closes the jobs.
Open(w) ==
    \E r \in Requests, jobs \in {IF Rule("all-jobs") THEN Jobs ELSE {s.j : s \in snaps}} \cup {{j} : j \in Jobs} :
        /\ pc[w] = "idle" /\ token < MaxToken /\ OfJobs(jobs) # {}
        /\ ~Closed(jobs) /\ \A e \in eras : e.r # r
        /\ token' = token + 1
        /\ eras' = eras \cup {[r |-> r, t |-> token + 1, jobs |-> jobs, switches |-> 0, upto |-> 0]}
        /\ Recall(w, [t |-> token + 1, r |-> r]) /\ Go(w, "plan")
        /\ UNCHANGED <<snaps, held, atts, dels, disk, proved>>

\* Erasure._taken, Erasure._closed: the same request, by another process or by the same one after a crash, at any time.
TakeOver(w) ==
    \E e \in eras :
        /\ pc[w] = "idle" /\ token < MaxToken
        /\ token' = token + 1
        /\ eras' = (eras \ {e}) \cup {[e EXCEPT !.t = token + 1]}
        /\ dels' = IF e.switches = 0 THEN dels \cup {Prefix(e.t)} ELSE dels
        /\ Recall(w, [t |-> token + 1, r |-> e.r]) /\ Go(w, IF e.switches = 0 THEN "plan" ELSE "finish")
        /\ UNCHANGED <<snaps, held, atts, disk, proved>>

MyErasure(w) == {e \in eras : e.r = mem[w].r /\ (Rule("owner") => e.t = mem[w].t)}

Erased(w, f) == IF mem[w].r \in f.x THEN File(mem[w].t, f.of, f.x \ {mem[w].r}) ELSE f
Exchanged(w, s) == [s EXCEPT !.files = {Erased(w, f) : f \in s.files}]
Changed(w) == {s \in mem[w].plan : Exchanged(w, s) # s}

\* Erasure.find, write_files, note_files: what is planned follows from the records at one version; new files lie below
\* its own token.
Plan(w) ==
    /\ pc[w] = "plan"
    /\ \E e \in MyErasure(w) :
        /\ Recall(w, [t |-> mem[w].t, r |-> mem[w].r, plan |-> OfJobs(e.jobs)])
        /\ disk' = disk
                 \cup {Erased(w, f) : f \in {g \in UNION {s.files : s \in OfJobs(e.jobs)} : mem[w].r \in g.x}}
    /\ Go(w, "switch")
    /\ UNCHANGED <<catalog, token, proved>>

CanSwitch(w, e) ==
    /\ Rule("one-switch") => e.switches = 0
    /\ Rule("no-attempt") => \A a \in atts : a.j \notin e.jobs
    /\ Rule("planned") => OfJobs(e.jobs) = mem[w].plan
    /\ Rule("switch-held") => \A s \in Changed(w) : <<s.j, s.n>> \notin held

\* Erasure.switch: all rows are exchanged, and the old files named by a deletion, in one entry. Its process may not
\* learn of it.
Switch(w) ==
    /\ pc[w] = "switch"
    /\ \E e \in MyErasure(w) :
        /\ CanSwitch(w, e)
        /\ LET after == (snaps \ mem[w].plan) \cup {Exchanged(w, s) : s \in mem[w].plan} IN
           /\ snaps' = after
           /\ dels' = dels \cup Exactly(Named \ UNION {s.files : s \in after})
        /\ eras' = (eras \ {e}) \cup {[e EXCEPT !.switches = @ + 1, !.upto = token]}
    /\ \/ Go(w, "finish") /\ Recall(w, [t |-> mem[w].t, r |-> mem[w].r])
       \/ UNCHANGED <<pc, mem>>
    /\ UNCHANGED <<held, atts, disk, token, proved>>

\* Erasure.switch, when the records are not those of the plan.
PlanAgain(w) ==
    /\ pc[w] = "switch" /\ \E e \in MyErasure(w) : e.switches = 0 /\ OfJobs(e.jobs) # mem[w].plan
    /\ Recall(w, [t |-> mem[w].t, r |-> mem[w].r]) /\ Go(w, "plan")
    /\ UNCHANGED <<catalog, disk, token, proved>>

\* Erasure._take_back: nothing was changed, and the jobs are open again. It looks that it was not switched.
GiveUp(w) ==
    /\ pc[w] \in {"plan", "switch"}
    /\ \E e \in MyErasure(w) :
        /\ Rule("give-up-look") => e.switches = 0
        /\ eras' = eras \ {e} /\ dels' = dels \cup {Prefix(mem[w].t)}
    /\ Rest(w)
    /\ UNCHANGED <<snaps, held, atts, disk, token, proved>>

\* Erasure._take_back, Erasure._own: of one that another process has taken over, or that was switched after all: nothing is deleted.
LookAtErasure(w) ==
    /\ pc[w] \in {"plan", "switch", "finish"}
    /\ IF \E e \in MyErasure(w) : e.switches > 0
       THEN pc[w] # "finish" /\ Go(w, "finish") /\ Recall(w, [t |-> mem[w].t, r |-> mem[w].r])
       ELSE MyErasure(w) = {} /\ Rest(w)
    /\ UNCHANGED <<catalog, disk, token, proved>>

\* Erasure.rewrite_logs, delete_old, erase_task_state, record, close: no old file that a deletion names is
\* left; then what was done is recorded, and the entry goes.
Finish(w) ==
    /\ pc[w] = "finish"
    /\ \E e \in MyErasure(w) :
        /\ e.switches > 0
        /\ \A d \in dels : \A f \in disk : (f \in d.files \/ f.t = d.t) => (e.r \notin f.x \/ f \in Named)
        /\ proved' = [proved EXCEPT ![e.r] = [j \in Jobs |-> IF j \in e.jobs \/ ~Rule("all-jobs") THEN e.upto ELSE @[j]]]
        /\ eras' = eras \ {e}
    /\ Rest(w)
    /\ UNCHANGED <<snaps, held, atts, dels, disk, token>>

---------------------------------------------------------------------------
\* Drops, holds, deletions (catalog/dropping.py, holds.py, deletions.py).

\* drop_snapshots: the row goes, and a deletion of the files that no other row names comes, in one entry.
Drop(s) ==
    /\ Rule("drop-held") => <<s.j, s.n>> \notin held
    /\ Rule("drop-base") => \A a \in atts : s \notin a.on
    /\ Rule("drop-closed") => ~Closed({s.j})
    /\ snaps' = snaps \ {s}
    /\ dels' = dels \cup Exactly(s.files \ UNION {r.files : r \in snaps \ {s}})
    /\ held' = held \ {<<s.j, s.n>>}     \* a hold is in the row
    /\ UNCHANGED <<atts, eras, disk, token, pc, mem, proved>>

\* hold_snapshot, release_snapshot
Hold(s) == /\ Holds /\ held' = held \cup {<<s.j, s.n>>}
           /\ UNCHANGED <<snaps, atts, eras, dels, disk, token, pc, mem, proved>>
Release(s) == /\ Holds /\ held' = held \ {<<s.j, s.n>>}
              /\ UNCHANGED <<snaps, atts, eras, dels, disk, token, pc, mem, proved>>

\* execute_deletion: looks at the log, and deletes later, however much later that is.
LookAtDeletion(w) ==
    /\ pc[w] = "idle"
    /\ \E d \in dels, f \in disk :
        /\ f \in d.files \/ f.t = d.t
        /\ Rule("deletion-look") => ~Protected(f)
        /\ Recall(w, [t |-> 0, files |-> {f}])
    /\ Go(w, "delete")
    /\ UNCHANGED <<catalog, disk, token, proved>>

Delete(w) ==
    /\ pc[w] = "delete" /\ disk' = disk \ mem[w].files
    /\ Rest(w)
    /\ UNCHANGED <<catalog, token, proved>>

\* finish_deletions: the entry goes when there is nothing left of what it names.
EndDeletion(d) ==
    /\ \A f \in disk : (f \in d.files \/ f.t = d.t) => Protected(f)
    /\ dels' = dels \ {d}
    /\ UNCHANGED <<snaps, held, atts, eras, disk, token, pc, mem, proved>>

\* sweep_tables, sweep_carried: lists first, looks at the log then, and deletes later.
List(w) ==
    /\ pc[w] = "idle"
    /\ \E f \in IF Rule("list-first") THEN disk
                ELSE {File(t, t, Requests) : t \in {u \in 1..MaxToken : \A a \in atts : a.t # u}} \ Named :
        Recall(w, [t |-> 0, files |-> {f}])
    /\ Go(w, IF Rule("list-first") THEN "listed" ELSE "delete")
    /\ UNCHANGED <<catalog, disk, token, proved>>
LookAtListed(w) ==
    /\ pc[w] = "listed"
    /\ IF Rule("sweep-look") /\ \E f \in mem[w].files : Protected(f)
       THEN Rest(w) ELSE Go(w, "delete") /\ UNCHANGED mem
    /\ UNCHANGED <<catalog, disk, token, proved>>

\* A process is killed, or its machine is; what it remembers is gone, and what it wrote is there.
Crash(w) == /\ pc[w] # "idle" /\ Rest(w)
            /\ UNCHANGED <<catalog, disk, token, proved>>

---------------------------------------------------------------------------
Next == \/ \E w \in Importers : BeginImport(w)
        \/ \E w \in Editors : BeginEdit(w)
        \/ \E w \in Importers \cup Editors : Write(w) \/ Commit(w) \/ End(w) \/ FindGone(w) \/ LookAtOwn(w)
        \/ \E a \in atts : TakeBack(a)
        \/ \E w \in Erasers : \/ Open(w) \/ TakeOver(w) \/ Plan(w) \/ Switch(w) \/ PlanAgain(w)
                              \/ GiveUp(w) \/ LookAtErasure(w) \/ Finish(w)
        \/ \E s \in snaps : Drop(s) \/ Hold(s) \/ Release(s)
        \/ \E w \in Cleaners : LookAtDeletion(w) \/ List(w) \/ LookAtListed(w)
        \/ \E d \in dels : EndDeletion(d)
        \/ \E w \in Processes : Delete(w) \/ Crash(w)
Spec == Init /\ [][Next]_vars

---------------------------------------------------------------------------
\* What holds at every moment.

\* The files of a snapshot exist.
Whole == \A s \in snaps : s.files \subseteq disk
\* They are those that it was committed with, or erased forms of them.
ItsOwn == \A s \in snaps : {f.of : f \in s.files} = s.is
\* What was proved to be gone is in no snapshot: no attempt of before brings it back.
Gone == \A s \in snaps : \A f \in s.files : \A r \in f.x : s.by > proved[r][s.j]
\* No job has two snapshots of one name.
OneName == \A s, u \in snaps : <<s.j, s.n>> = <<u.j, u.n>> => s = u
\* An erasure is switched once, and no job has two that are open.
OneSwitch == \A e \in eras : e.switches < 2
OneErasure == \A e, u \in eras : e.jobs \cap u.jobs # {} => e = u
\* No snapshot with a hold is dropped or changed.
HoldsKeep == [][\A s \in snaps : <<s.j, s.n>> \in held => s \in snaps']_vars

---------------------------------------------------------------------------
\* What comes to pass in the end, if somebody goes on to take back and to clean: tokens are finite here, so that
\* attempts cease. Who lists, looks or deletes may crash as often as ever, but not every time.
ListGarbage(w) == List(w) /\ \E f \in mem'[w].files : ~Protected(f)
LookAtGarbage(w) == LookAtListed(w) /\ pc'[w] = "delete"
Fair == /\ WF_vars(\E a \in atts : TakeBack(a)) /\ WF_vars(\E d \in dels : EndDeletion(d))
        /\ \A w \in Cleaners : /\ SF_vars(ListGarbage(w)) /\ SF_vars(LookAtGarbage(w)) /\ SF_vars(Delete(w))
                               /\ WF_vars(LookAtListed(w))
FairSpec == Spec /\ Fair
\* No attempt stays, no deletion stays, and there is no file that nobody names.
Cleaned == <>[](atts = {} /\ dels = {} /\ \A f \in disk : Protected(f))

\* What differs by name only is explored once.
Alike == Permutations(Importers) \cup Permutations(Erasers) \cup Permutations(Cleaners) \cup Permutations(Names)
         \cup Permutations(Jobs) \cup Permutations(Requests)
=============================================================================
