import java.util.ArrayList;
import java.util.LinkedList;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import org.apache.flink.api.common.typeutils.TypeSerializer;
import org.apache.flink.api.common.typeutils.TypeSerializerSnapshot;
import org.apache.flink.api.common.typeutils.base.BooleanValueSerializer;
import org.apache.flink.api.common.typeutils.base.ByteValueSerializer;
import org.apache.flink.api.common.typeutils.base.CharValueSerializer;
import org.apache.flink.api.common.typeutils.base.DoubleValueSerializer;
import org.apache.flink.api.common.typeutils.base.FloatValueSerializer;
import org.apache.flink.api.common.typeutils.base.IntSerializer;
import org.apache.flink.api.common.typeutils.base.IntValueSerializer;
import org.apache.flink.api.common.typeutils.base.ListSerializer;
import org.apache.flink.api.common.typeutils.base.LongSerializer;
import org.apache.flink.api.common.typeutils.base.LongValueSerializer;
import org.apache.flink.api.common.typeutils.base.ShortValueSerializer;
import org.apache.flink.api.common.typeutils.base.StringSerializer;
import org.apache.flink.api.common.typeutils.base.StringValueSerializer;
import org.apache.flink.api.common.typeutils.base.VoidSerializer;
import org.apache.flink.cep.nfa.ComputationState;
import org.apache.flink.cep.nfa.DeweyNumber;
import org.apache.flink.cep.nfa.DeweyNumber.DeweyNumberSerializer;
import org.apache.flink.cep.nfa.NFAState;
import org.apache.flink.cep.nfa.NFAStateSerializer;
import org.apache.flink.cep.nfa.sharedbuffer.EventId;
import org.apache.flink.cep.nfa.sharedbuffer.EventId.EventIdSerializer;
import org.apache.flink.cep.nfa.sharedbuffer.Lockable;
import org.apache.flink.cep.nfa.sharedbuffer.Lockable.LockableTypeSerializer;
import org.apache.flink.cep.nfa.sharedbuffer.NodeId;
import org.apache.flink.cep.nfa.sharedbuffer.NodeId.NodeIdSerializer;
import org.apache.flink.cep.nfa.sharedbuffer.SharedBufferEdge;
import org.apache.flink.cep.nfa.sharedbuffer.SharedBufferEdge.SharedBufferEdgeSerializer;
import org.apache.flink.cep.nfa.sharedbuffer.SharedBufferNode;
import org.apache.flink.cep.nfa.sharedbuffer.SharedBufferNodeSerializer;
import org.apache.flink.runtime.jobgraph.OperatorID;
import org.apache.flink.runtime.state.ttl.TtlAwareSerializer;
import org.apache.flink.runtime.state.ttl.TtlAwareSerializerSnapshotWrapper;
import org.apache.flink.runtime.state.ttl.TtlStateFactory;
import org.apache.flink.runtime.state.ttl.TtlValue;
import org.apache.flink.streaming.api.functions.sink.legacy.TwoPhaseCommitSinkFunction.State;
import org.apache.flink.streaming.api.functions.sink.legacy.TwoPhaseCommitSinkFunction.StateSerializer;
import org.apache.flink.streaming.api.functions.sink.legacy.TwoPhaseCommitSinkFunction.TransactionHolder;
import org.apache.flink.streaming.api.utils.ByteArrayWrapper;
import org.apache.flink.streaming.api.utils.ByteArrayWrapperSerializer;
import org.apache.flink.streaming.api.watermark.InternalWatermark;
import org.apache.flink.streaming.api.watermark.Watermark;
import org.apache.flink.streaming.runtime.streamrecord.LatencyMarker;
import org.apache.flink.streaming.runtime.streamrecord.RecordAttributes;
import org.apache.flink.streaming.runtime.streamrecord.StreamElementSerializer;
import org.apache.flink.streaming.runtime.streamrecord.StreamRecord;
import org.apache.flink.streaming.runtime.watermarkstatus.WatermarkStatus;
import org.apache.flink.types.BooleanValue;
import org.apache.flink.types.ByteValue;
import org.apache.flink.types.CharValue;
import org.apache.flink.types.DoubleValue;
import org.apache.flink.types.FloatValue;
import org.apache.flink.types.IntValue;
import org.apache.flink.types.LongValue;
import org.apache.flink.types.ShortValue;
import org.apache.flink.types.StringValue;

/**
 * Types that Flink 2 and its libraries keep in state for themselves: of asynchronous I/O, of the
 * asynchronous state API's time to live, of sinks, of pattern detection, of Python jobs.
 *
 * <pre>
 * javac -cp FLINK -d OUT LibraryVectors.java Vectors.java Json.java
 * java -cp FLINK:OUT LibraryVectors > libraries.jsonl
 * </pre>
 */
public class LibraryVectors extends Vectors {
    public static void main(String[] args) throws Exception {
        streamElements();
        timeToLive();
        sinks();
        patterns();
        byte[] data = {1, -128, 127};
        type("ByteArrayWrapper", ByteArrayWrapperSerializer.INSTANCE, hashed(new ByteArrayWrapper(new byte[0]), ""),
                hashed(new ByteArrayWrapper(data), HEX.formatHex(data)),
                value(new ByteArrayWrapper(data, 1, 2), HEX.formatHex(data, 1, 2)));
        pair("ByteArrayWrapper", "ByteArrayWrapper");
        values();
    }

    /** The mutable twins of basic types, some of which have a hash code of their own. */
    private static void values() throws Exception {
        type("LongValue", LongValueSerializer.INSTANCE, hashed(new LongValue(-1L), -1L), hashed(new LongValue(1L << 40), 1L << 40));
        type("DoubleValue", DoubleValueSerializer.INSTANCE, hashed(new DoubleValue(0.5), 0.5), hashed(new DoubleValue(-3.0), -3.0));
        type("BooleanValue", BooleanValueSerializer.INSTANCE, hashed(new BooleanValue(true), true),
                hashed(new BooleanValue(false), false));
        type("FloatValue", FloatValueSerializer.INSTANCE, hashed(new FloatValue(0.5f), 0.5));
        type("IntValue", IntValueSerializer.INSTANCE, hashed(new IntValue(-7), -7));
        type("ShortValue", ShortValueSerializer.INSTANCE, hashed(new ShortValue((short) -7), -7));
        type("ByteValue", ByteValueSerializer.INSTANCE, hashed(new ByteValue((byte) -7), -7));
        type("CharValue", CharValueSerializer.INSTANCE, hashed(new CharValue('x'), "x"));
        type("StringValue", StringValueSerializer.INSTANCE, hashed(new StringValue("text"), "text"));
    }

    private static Map<String, Object> element(String kind, Object... given) {
        Map<String, Object> found = fields("kind", kind, "timestamp", null, "value", null, "operator_id", null,
                "subtask_index", null, "subpartition_index", null, "status", null, "is_backlog", null);
        found.putAll(fields(given));
        return found;
    }

    private static void streamElements() throws Exception {
        OperatorID operator = new OperatorID(0x0123456789abcdefL, -2L);
        type("StreamElement<String>", new StreamElementSerializer<>(StringSerializer.INSTANCE),
                value(new StreamRecord<>("a", 7L), element("record", "timestamp", 7L, "value", "a")),
                value(new StreamRecord<>("b"), element("record", "value", "b")),
                value(new StreamRecord<>(null, Long.MIN_VALUE), element("record", "timestamp", Long.MIN_VALUE)),
                value(new Watermark(-1L), element("watermark", "timestamp", -1L)),
                value(Watermark.MAX_WATERMARK, element("watermark", "timestamp", Long.MAX_VALUE)),
                value(new InternalWatermark(5L, 3), element("internal_watermark", "timestamp", 5L, "subpartition_index", 3)),
                value(WatermarkStatus.IDLE, element("watermark_status", "status", -1)),
                value(WatermarkStatus.ACTIVE, element("watermark_status", "status", 0)),
                value(new LatencyMarker(9L, operator, 4), element("latency_marker", "timestamp", 9L,
                        "operator_id", operator.toHexString(), "subtask_index", 4)),
                value(new RecordAttributes(true), element("record_attributes", "is_backlog", true)),
                value(new RecordAttributes(false), element("record_attributes", "is_backlog", false)));
        type("StreamElement<List<Long>>", new StreamElementSerializer<>(new ListSerializer<>(LongSerializer.INSTANCE)),
                value(new StreamRecord<>(List.of(1L, 2L)), element("record", "value", List.of(1L, 2L))));
        pairs("StreamElement<String>", "StreamElement<List<Long>>");
    }

    private static void timeToLive() throws Exception {
        LongSerializer time = LongSerializer.INSTANCE;
        TypeSerializer<?> ours = new org.apache.flink.runtime.state.v2.ttl.TtlStateFactory.TtlSerializer<>(
                time, StringSerializer.INSTANCE);
        TypeSerializer<?> older = new TtlStateFactory.TtlSerializer<>(time, StringSerializer.INSTANCE);
        type("asynchronous TtlValue<String>", ours,
                value(new TtlValue<>("a", 12L), fields("ttl", 12L, "value", "a")),
                value(new TtlValue<>(null, -1L), fields("ttl", -1L, "value", null)));
        type("asynchronous TtlValue<Long>", new org.apache.flink.runtime.state.v2.ttl.TtlStateFactory.TtlSerializer<>(
                time, time), value(new TtlValue<>(3L, 12L), fields("ttl", 12L, "value", 3L)));
        type("TtlValue<String>", older, value(new TtlValue<>("a", 12L), fields("ttl", 12L, "value", "a")));
        type("String", StringSerializer.INSTANCE, hashed("a", "a"));
        String[] names = {"asynchronous TtlValue<String>", "asynchronous TtlValue<Long>", "TtlValue<String>", "String"};
        pairs(names);
        for (String old : names) {
            for (String now : names) {
                backend(old, now);
            }
        }
    }

    /** The question as a state backend puts it, which knows of time to live. */
    @SuppressWarnings({"unchecked", "rawtypes"})
    private static void backend(String old, String now) throws Exception {
        TypeSerializerSnapshot before = new TtlAwareSerializerSnapshotWrapper<>(again(old)).getTtlAwareSerializerSnapshot();
        TypeSerializer<?> serializer = TtlAwareSerializer.wrapTtlAwareSerializer(again(now).restoreSerializer());
        TypeSerializerSnapshot after = serializer.snapshotConfiguration();
        System.out.println(Json.of(fields("old", old, "new", now, "backend", true,
                "verdict", told(after.resolveSchemaCompatibility(before)))));
    }

    private static void sinks() throws Exception {
        StateSerializer<String, Long> serializer = new StateSerializer<>(StringSerializer.INSTANCE, LongSerializer.INSTANCE);
        Object[][] held = {{"t1", 1L}, {"t2", -2L}};
        Value all = state(held[0], held, 5L);
        type("TwoPhaseCommitState<String, Long>", serializer, all, state(null, new Object[0][], null), state(held[1], new Object[0][], 0L));
        type("TwoPhaseCommitState<String, Void>", new StateSerializer<>(StringSerializer.INSTANCE, VoidSerializer.INSTANCE));
        type("TwoPhaseCommitState<Int, Long>", new StateSerializer<>(IntSerializer.INSTANCE, LongSerializer.INSTANCE));
        StateSerializer<String, Long> never = new StateSerializer<>(StringSerializer.INSTANCE, LongSerializer.INSTANCE, false);
        type("TwoPhaseCommitState<String, Long> always open", never, all, state(held[1], new Object[0][], null));
        pairs("TwoPhaseCommitState<String, Long>", "TwoPhaseCommitState<String, Void>",
                "TwoPhaseCommitState<Int, Long>", "TwoPhaseCommitState<String, Long> always open");
    }

    private static Value state(Object[] open, Object[][] pending, Long context) {
        List<TransactionHolder<String>> transactions = new ArrayList<>();
        List<Object> shown = new ArrayList<>();
        for (Object[] one : pending) {
            transactions.add(holder(one));
            shown.add(holderShown(one));
        }
        return value(new State<>(open == null ? null : holder(open), transactions, Optional.ofNullable(context)),
                fields("pending_transaction", open == null ? null : holderShown(open),
                        "pending_commit_transactions", shown, "context", context));
    }

    private static TransactionHolder<String> holder(Object[] one) {
        return new TransactionHolder<>((String) one[0], (Long) one[1]);
    }

    private static Map<String, Object> holderShown(Object[] one) {
        return fields("handle", one[0], "start_time", one[1]);
    }

    // ---------------------------------------------------------------------------------- flink-cep

    private static final EventId FIRST = new EventId(0, 1_000L);
    private static final EventId SECOND = new EventId(3, -5L);

    private static Map<String, Object> shown(EventId event) {
        return event == null ? null : fields("id", event.getId(), "timestamp", event.getTimestamp());
    }

    private static Map<String, Object> shown(NodeId node) {
        return node == null ? null : fields("event_id", shown(node.getEventId()), "page_name", node.getPageName());
    }

    private static Value dewey(String digits) {
        List<Object> shown = new ArrayList<>();
        for (String digit : digits.split("\\.")) {
            shown.add(Integer.valueOf(digit));
        }
        return hashed(DeweyNumber.fromString(digits), shown);
    }

    private static Value edge(NodeId target, String digits) {
        Value version = dewey(digits);
        return hashed(new SharedBufferEdge(target, (DeweyNumber) version.object()),
                fields("target", shown(target), "dewey_number", version.json()));
    }

    private static Value lockable(Value element, int counter) {
        return new Value(new Lockable<>(element.object(), counter),
                fields("ref_counter", counter, "element", element.json()), element.hashed());
    }

    @SuppressWarnings("unchecked")
    private static Value node(Value... edges) {
        SharedBufferNode node = new SharedBufferNode();
        List<Object> shown = new ArrayList<>();
        for (Value edge : edges) {
            node.getEdges().add((Lockable<SharedBufferEdge>) edge.object());
            shown.add(edge.json());
        }
        return hashed(node, shown);
    }

    private static Value computation(String name, NodeId node, String version, long start, long previous, EventId event) {
        Value number = dewey(version);
        return value(ComputationState.createState(name, node, (DeweyNumber) number.object(), start, previous, event),
                fields("current_state_name", name, "previous_buffer_entry", shown(node), "version", number.json(),
                        "start_timestamp", start, "previous_timestamp", previous, "start_event_id", shown(event)));
    }

    private static Value nfa(List<Value> partial, List<Value> completed) {
        return value(new NFAState(queue(partial), queue(completed)), fields(
                "partial_matches", partial.stream().map(Value::json).toList(),
                "completed_matches", completed.stream().map(Value::json).toList()));
    }

    private static LinkedList<ComputationState> queue(List<Value> states) {
        LinkedList<ComputationState> found = new LinkedList<>();
        states.forEach(one -> found.add((ComputationState) one.object()));
        return found;
    }

    private static void patterns() throws Exception {
        NodeId node = new NodeId(FIRST, "start");
        NodeId unnamed = new NodeId(SECOND, null);
        type("DeweyNumber", DeweyNumberSerializer.INSTANCE, dewey("1"), dewey("1.0.2147483647"), dewey("-7.3"));
        type("EventId", EventIdSerializer.INSTANCE, hashed(FIRST, shown(FIRST)), hashed(SECOND, shown(SECOND)),
                hashed(new EventId(-1, Long.MIN_VALUE), fields("id", -1, "timestamp", Long.MIN_VALUE)));
        type("NodeId", new NodeIdSerializer(), hashed(node, shown(node)), hashed(unnamed, shown(unnamed)), value(null, null));
        Value first = edge(node, "1.0");
        Value last = edge(null, "2");
        type("SharedBufferEdge", new SharedBufferEdgeSerializer(), first, last, edge(unnamed, "3.1.4"));
        type("Lockable<String>", new LockableTypeSerializer<>(StringSerializer.INSTANCE),
                lockable(hashed("a", "a"), 3), lockable(hashed("", ""), -1));
        type("Lockable<Int>", new LockableTypeSerializer<>(IntSerializer.INSTANCE), lockable(hashed(5, 5), 0));
        type("SharedBufferNode", new SharedBufferNodeSerializer(), node(),
                node(lockable(first, 2)), node(lockable(last, 0), lockable(first, 1)));
        type("Lockable<SharedBufferNode>", new LockableTypeSerializer<>(new SharedBufferNodeSerializer()),
                lockable(node(lockable(first, 2)), 1));
        Value begun = computation("start", null, "1", -1L, -1L, null);
        Value later = computation("middle:0", node, "1.0.1", 1_000L, 1_500L, FIRST);
        Value done = computation("$endState$", unnamed, "2.0", -5L, 3L, SECOND);
        type("NFAState", new NFAStateSerializer(), nfa(List.of(), List.of()), nfa(List.of(begun), List.of()),
                nfa(List.of(later, begun), List.of(done)));
        type("NFAState without previous timestamps", withoutPrevious(), nfa(List.of(begun), List.of()),
                nfa(List.of(computation("middle:0", node, "1.0.1", 1_000L, -1L, FIRST)), List.of()));
        for (String one : new String[] {"DeweyNumber", "EventId", "NodeId", "SharedBufferEdge", "SharedBufferNode",
                "Lockable<SharedBufferNode>"}) {
            pair(one, one);
        }
        pair("EventId", "DeweyNumber");
        pairs("NFAState", "NFAState without previous timestamps");
        pairs("Lockable<String>", "Lockable<Int>");
    }

    /** The serializer of before Flink 1.19, which its snapshot restores. */
    private static TypeSerializer<?> withoutPrevious() throws Exception {
        byte[] snapshot = written(new NFAStateSerializer().snapshotConfiguration());
        int flag = 2 + new NFAStateSerializer().snapshotConfiguration().getClass().getName().length() + 12;
        if (snapshot[flag] != 1) {
            throw new IllegalStateException("no flag at " + flag);
        }
        snapshot[flag] = 0;
        return read(snapshot).restoreSerializer();
    }
}
