-------------------------------- MODULE Old --------------------------------
(* The protocol before `Lake.tla`: notes beside the catalog, and a guess who is alive. Kept to show that the models can
   see what went wrong: TLC finds (a) an import beside an erasure, (b) one erasure from two containers whose processes
   have equal numbers, (c) a writer that wakes after 25 hours. One job, one table, one person; drops are left out. *)
EXTENDS Naturals

CONSTANTS
    Importers, Erasers, \* processes
    Here,               \* those on one host; each of the others is alone on its own, as process number 1
    Names, MaxToken,
    Late                \* whether 24 hours may pass
VARIABLES rows, disk, token,
    notes,              \* of attempts
    erasure,            \* the note of the erasure, or nothing
    old,                \* tokens of notes that are older than 24 hours
    pc, mem
vars == <<rows, disk, token, notes, erasure, old, pc, mem>>

Processes == Importers \cup Erasers
Nothing == [t |-> 0]
File(t, of) == [t |-> t, of |-> of]     \* of an import if `t` is `of`, else its erased form
Named == UNION {r.files : r \in rows}
Below(t, but) == {f \in disk : f.t = t /\ f \notin but}
Go(w, to) == pc' = [pc EXCEPT ![w] = to]
Recall(w, what) == mem' = [mem EXCEPT ![w] = what]
Rest(w) == Go(w, "idle") /\ Recall(w, Nothing)

\* attempts.is_alive
Alive(w, note) == /\ note.t \notin old
                  /\ \/ ~({w, note.w} \subseteq Here \/ w = note.w)     \* another host's
                     \/ mem[note.w].t = note.t
SameNumber(w, v) == w = v \/ {w, v} \cap Here = {}

\* One snapshot was imported before.
Init == /\ rows = {[n |-> CHOOSE n \in Names : TRUE, files |-> {File(1, 1)}]}
        /\ disk = {File(1, 1)} /\ token = 1 /\ notes = {} /\ erasure = Nothing /\ old = {}
        /\ pc = [w \in Processes |-> "idle"] /\ mem = [w \in Processes |-> Nothing]

\* ---- importing
\* attempts.recover_attempts: of whoever begins to write.
Recover(w) ==
    /\ pc[w] = "idle" /\ erasure = Nothing
    /\ \E note \in notes :
        /\ ~Alive(w, note)
        /\ disk' = IF \E f \in Named : f.t = note.t THEN disk ELSE disk \ Below(note.t, {})
        /\ notes' = notes \ {note}
    /\ UNCHANGED <<rows, token, erasure, old, pc, mem>>

\* _Import._previous: before the note.
ReadPrevious(w) ==
    /\ pc[w] = "idle" /\ erasure = Nothing
    /\ \E n \in Names, previous \in rows \cup {Nothing} :
        /\ \A r \in rows : r.n # n
        /\ Recall(w, [t |-> 0, n |-> n, previous |-> previous])
    /\ Go(w, "begin")
    /\ UNCHANGED <<rows, disk, token, notes, erasure, old>>

\* Attempt.__enter__: the note, ...
WriteNote(w) ==
    /\ pc[w] = "begin" /\ token < MaxToken
    /\ token' = token + 1 /\ notes' = notes \cup {[t |-> token + 1, w |-> w]}
    /\ Recall(w, [mem[w] EXCEPT !.t = token + 1])
    /\ Go(w, "look")
    /\ UNCHANGED <<rows, disk, erasure, old>>

\* ... then a look for erasures. Of the previous record only its id is looked for.
LookForErasures(w) ==
    /\ pc[w] = "look"
    /\ IF erasure # Nothing
       THEN notes' = {note \in notes : note.t # mem[w].t} /\ Rest(w)
       ELSE /\ Go(w, "write") /\ UNCHANGED notes
            /\ LET previous == mem[w].previous
                   there == previous # Nothing /\ \E r \in rows : r.n = previous.n IN
               Recall(w, [t |-> mem[w].t, n |-> mem[w].n, files |-> IF there THEN previous.files ELSE {}])
    /\ UNCHANGED <<rows, disk, token, erasure, old>>

Write(w) ==
    /\ pc[w] = "write"
    /\ disk' = disk \cup {File(mem[w].t, mem[w].t)}
    /\ Recall(w, [mem[w] EXCEPT !.files = @ \cup {File(mem[w].t, mem[w].t)}])
    /\ Go(w, "append")
    /\ UNCHANGED <<rows, token, notes, erasure, old>>

\* Catalog.append: it looks at the name alone.
Append(w) ==
    /\ pc[w] = "append" /\ \A r \in rows : r.n # mem[w].n
    /\ rows' = rows \cup {[n |-> mem[w].n, files |-> mem[w].files]}
    /\ notes' = {note \in notes : note.t # mem[w].t}
    /\ Rest(w)
    /\ UNCHANGED <<disk, token, erasure, old>>

\* ---- erasing.Erasure.run
Switched == Named \subseteq {f \in Named : f.t # f.of}
\* Erasure._first_step, where there is no note.
First(w) ==
    /\ pc[w] = "idle" /\ erasure = Nothing
    /\ token < MaxToken /\ token' = token + 1
    /\ Recall(w, [t |-> token + 1]) /\ Go(w, "take")
    /\ UNCHANGED <<rows, disk, notes, erasure, old>>
\* Erasure._first_step, where there is one: of a process that is dead, or whose number is one's own.
GoOn(w) ==
    /\ pc[w] = "idle" /\ erasure # Nothing
    /\ ~Alive(w, erasure) \/ SameNumber(w, erasure.w)
    /\ Recall(w, [t |-> erasure.t])
    /\ Go(w, IF erasure.noted /\ Switched THEN "after" ELSE "take")
    /\ UNCHANGED <<rows, disk, token, notes, erasure, old>>

\* Erasure.take: its note, then a look for attempts.
Take(w) ==
    /\ pc[w] = "take"
    /\ erasure' = [t |-> mem[w].t, w |-> w, noted |-> FALSE]
    /\ Go(w, "attempts")
    /\ UNCHANGED <<rows, disk, token, notes, old, mem>>
LookForAttempts(w) ==
    /\ pc[w] = "attempts"
    /\ IF \E note \in notes : Alive(w, note)
       THEN erasure' = Nothing /\ Rest(w)
       ELSE Go(w, "find") /\ UNCHANGED <<erasure, mem>>
    /\ UNCHANGED <<rows, disk, token, notes, old>>

\* Erasure.find: it deletes what a crash left below its token.
Find(w) ==
    /\ pc[w] = "find"
    /\ Recall(w, [t |-> mem[w].t, plan |-> rows])
    /\ disk' = disk \ Below(mem[w].t, Named)
    /\ Go(w, "write files")
    /\ UNCHANGED <<rows, token, notes, erasure, old>>

Planned(w) == UNION {r.files : r \in mem[w].plan}
Erased(w, f) == IF f.t = f.of THEN File(mem[w].t, f.of) ELSE f
\* Erasure.write_files, note_files
WriteFiles(w) ==
    /\ pc[w] = "write files" /\ Planned(w) \subseteq disk
    /\ disk' = disk \cup {Erased(w, f) : f \in Planned(w)}
    /\ erasure' = [t |-> mem[w].t, w |-> w, noted |-> TRUE]
    /\ Go(w, "switch")
    /\ UNCHANGED <<rows, token, notes, old, mem>>

\* Erasure.switch: rows of those ids that there are.
Switch(w) ==
    /\ pc[w] = "switch"
    /\ rows' = {IF \E p \in mem[w].plan : p.n = r.n
                THEN LET p == CHOOSE p \in mem[w].plan : p.n = r.n IN [r EXCEPT !.files = {Erased(w, f) : f \in p.files}]
                ELSE r : r \in rows}
    /\ Go(w, "after")
    /\ UNCHANGED <<disk, token, notes, erasure, old, mem>>

\* Erasure._take_back, when an old file is missing: what its own plan does not name, below its token.
TakeBack(w) ==
    /\ pc[w] = "write files" /\ ~(Planned(w) \subseteq disk)
    /\ disk' = disk \ Below(mem[w].t, Planned(w))
    /\ erasure' = Nothing
    /\ Rest(w)
    /\ UNCHANGED <<rows, token, notes, old>>

\* Erasure.delete_old, record, close: every file that no row names goes.
After(w) ==
    /\ pc[w] = "after"
    /\ disk' = Named \cap disk
    /\ erasure' = Nothing
    /\ Rest(w)
    /\ UNCHANGED <<rows, token, notes, old>>

\* ---- around them
Crash(w) == /\ pc[w] # "idle" /\ Rest(w)
            /\ UNCHANGED <<rows, disk, token, notes, erasure, old>>
DayPasses == /\ Late /\ old' = 1..token
             /\ UNCHANGED <<rows, disk, token, notes, erasure, pc, mem>>

Next == \/ \E w \in Importers : \/ Recover(w) \/ ReadPrevious(w) \/ WriteNote(w) \/ LookForErasures(w)
                                \/ Write(w) \/ Append(w)
        \/ \E w \in Erasers : \/ First(w) \/ GoOn(w) \/ Take(w) \/ LookForAttempts(w) \/ Find(w) \/ WriteFiles(w)
                              \/ Switch(w) \/ TakeBack(w) \/ After(w)
        \/ \E w \in Processes : Crash(w)
        \/ DayPasses
Spec == Init /\ [][Next]_vars

\* The files of a snapshot exist.
Whole == \A r \in rows : r.files \subseteq disk
=============================================================================
