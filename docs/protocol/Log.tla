-------------------------------- MODULE Log --------------------------------
(* One entry of the catalog's log is a compare-and-swap: `Lake.tla` takes each as one step, and this says why it may.

   A process reads the log at a version, writes a file of rows (or the list of a deletion) that is called after the one
   version that may name it, and puts the entry if there is none of that version. It may not learn whether it did. *)
EXTENDS Naturals, Sequences, TLC

CONSTANTS Writers, Cleaners,
    MaxVersion,     \* how long the log gets
    MaxTries,       \* how many files are written
    Without         \* rules that are left out, to see that each is needed
VARIABLES
    log,    \* the entries: whose change each is, and the file that it names
    flying, \* entries that are on their way
    lost,   \* versions whose entries were cleaned up
    ghosts, \* entries that were put afterwards where one was cleaned up: nobody reads the log from there
    disk,   \* files of rows
    tries,  \* how many files were written
    done,   \* changes of which somebody was told that they are made
    failed, \* changes of which somebody was told that they are not made
    pc, mem
vars == <<log, flying, lost, ghosts, disk, tries, done, failed, pc, mem>>

Processes == Writers \cup Cleaners
Rule(name) == name \notin Without
Nothing == [v |-> 0]
Go(w, to) == pc' = [pc EXCEPT ![w] = to]
Recall(w, what) == mem' = [mem EXCEPT ![w] = what]
Named == {log[Len(log)].file}    \* each entry names the rows anew
First == [v |-> 1, id |-> MaxTries]
\* Whose entry is under the name of a version.
There(v) == IF v \in lost THEN {g.w : g \in {g \in ghosts : g.v = v}} ELSE IF v <= Len(log) THEN {log[v].w} ELSE {}

Init == /\ log = <<[w |-> "nobody", file |-> First]>> /\ disk = {First}
        /\ flying = {} /\ lost = {} /\ ghosts = {} /\ tries = 0 /\ done = {} /\ failed = {}
        /\ pc = [w \in Processes |-> "read"] /\ mem = [w \in Processes |-> Nothing]

\* Catalog.transact: reads the log, and checks what the change asks for. Each writer makes one change.
Read(w) ==
    /\ pc[w] = "read" /\ Len(log) < MaxVersion
    /\ \/ Go(w, "prepare") /\ Recall(w, [v |-> Len(log)]) /\ UNCHANGED failed
       \/ Go(w, "end") /\ failed' = failed \cup {w} /\ UNCHANGED mem    \* it is refused
    /\ UNCHANGED <<ghosts, log, flying, lost, disk, tries, done>>

\* DeltaCommit.add_rows: the file is there, and synced, before the entry.
Prepare(w) ==
    /\ pc[w] = "prepare" /\ tries < MaxTries
    /\ LET file == [v |-> mem[w].v + 1, id |-> tries] IN
       /\ disk' = disk \cup {file}
       /\ Recall(w, [v |-> mem[w].v, file |-> file])
    /\ tries' = tries + 1
    /\ Go(w, "put")
    /\ UNCHANGED <<ghosts, log, flying, lost, done, failed>>

\* DeltaCommit._put: a request is on its way. It may come to nothing, or be done when nobody waits for it any more.
Put(w) ==
    /\ pc[w] = "put"
    /\ flying' = flying \cup {[w |-> w, v |-> mem[w].v, file |-> mem[w].file]}
    /\ Go(w, "unsure")
    /\ UNCHANGED <<ghosts, log, lost, disk, tries, done, failed, mem>>
\* The store, the disk: the entry is there if there was none of that version; if one was cleaned up, where nobody reads it.
Arrive(p) ==
    /\ log' = IF Len(log) = p.v THEN Append(log, [w |-> p.w, file |-> p.file]) ELSE log
    /\ ghosts' = IF p.v + 1 \in lost /\ There(p.v + 1) = {} THEN ghosts \cup {[v |-> p.v + 1, w |-> p.w]} ELSE ghosts
    /\ flying' = flying \ {p}
    /\ UNCHANGED <<lost, disk, tries, done, failed, pc, mem>>
Vanish(p) == /\ flying' = flying \ {p}
             /\ UNCHANGED <<ghosts, log, lost, disk, tries, done, failed, pc, mem>>

\* DeltaCommit._is_ours: once there is an entry of that version it says whose it is. Until then the same is put again: what
\* is on its way might still arrive. DeltaCommit._refuse_overtaken: if the entry before is not the one that was read any
\* more, another may have been cleaned up; then nothing is told.
ReadBack(w) ==
    /\ pc[w] = "unsure"
    /\ LET there == There(mem[w].v + 1) IN
       IF there = {} THEN Go(w, IF Rule("conclusive") THEN "put" ELSE "read") /\ UNCHANGED done
       ELSE IF Rule("overtaken") /\ mem[w].v \in lost THEN Go(w, "end") /\ UNCHANGED done
       ELSE IF Rule("read-back") /\ there = {w} THEN Go(w, "end") /\ done' = done \cup {w}
       ELSE Go(w, "read") /\ UNCHANGED done
    /\ UNCHANGED <<ghosts, log, flying, lost, disk, tries, failed, mem>>

\* Killed: whoever asked is told nothing.
Crash(w) == /\ pc[w] # "end" /\ Go(w, IF w \in Cleaners THEN "read" ELSE "end") /\ Recall(w, Nothing)
            /\ UNCHANGED <<ghosts, log, flying, lost, disk, tries, done, failed>>

\* sweep_rows, delete_old_rows: a file of a version that the log has passed, and that the log does not name, is named by nobody ever.
Look(w) ==
    /\ pc[w] = "read"
    /\ \E f \in disk \ Named : /\ Rule("past") => f.v <= Len(log)
                               /\ Recall(w, [v |-> 0, file |-> f])
    /\ Go(w, "delete")
    /\ UNCHANGED <<ghosts, log, flying, lost, disk, tries, done, failed>>
Delete(w) ==
    /\ pc[w] = "delete" /\ disk' = disk \ {mem[w].file}
    /\ Go(w, "read") /\ Recall(w, Nothing)
    /\ UNCHANGED <<ghosts, log, flying, lost, tries, done, failed>>
\* sweep_catalog: of the entries before the newest one, the oldest first; and what was put there afterwards.
CleanUp ==
    /\ \/ /\ \E v \in 1..(Len(log) - 1) \ lost : /\ Rule("oldest-first") => 1..(v - 1) \subseteq lost
                                                /\ lost' = lost \cup {v}
          /\ UNCHANGED ghosts
       \/ /\ \E g \in ghosts : ghosts' = ghosts \ {g}
          /\ UNCHANGED lost
    /\ UNCHANGED <<log, flying, disk, tries, done, failed, pc, mem>>

Next == \/ \E w \in Writers : Read(w) \/ Prepare(w) \/ Put(w) \/ ReadBack(w)
        \/ \E p \in flying : Arrive(p) \/ Vanish(p)
        \/ \E w \in Cleaners : Look(w) \/ Delete(w)
        \/ \E w \in Processes : Crash(w)
        \/ CleanUp
Spec == Init /\ [][Next]_vars

\* A change is made once.
Once == \A i, k \in 1..Len(log) : log[i].w = log[k].w => i = k
\* What was told is true.
Made == \A w \in done : \E i \in 1..Len(log) : log[i].w = w
NotMade == \A w \in failed : \A i \in 1..Len(log) : log[i].w # w
\* The file that the log names exists.
Whole == Named \subseteq disk
\* What differs by name only is explored once.
Alike == Permutations(Writers)
=============================================================================
