import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Set;
import java.util.TreeSet;
import org.apache.flink.api.common.serialization.SerializerConfigImpl;
import org.apache.flink.api.common.typeutils.TypeSerializer;
import org.apache.flink.api.common.typeutils.base.BooleanSerializer;
import org.apache.flink.api.common.typeutils.base.ByteSerializer;
import org.apache.flink.api.common.typeutils.base.CharSerializer;
import org.apache.flink.api.common.typeutils.base.DoubleSerializer;
import org.apache.flink.api.common.typeutils.base.FloatSerializer;
import org.apache.flink.api.common.typeutils.base.GenericArraySerializer;
import org.apache.flink.api.common.typeutils.base.GenericArraySerializerConfigSnapshot;
import org.apache.flink.api.common.typeutils.base.IntSerializer;
import org.apache.flink.api.common.typeutils.base.LongSerializer;
import org.apache.flink.api.common.typeutils.base.LongValueSerializer;
import org.apache.flink.api.common.typeutils.base.ShortSerializer;
import org.apache.flink.api.common.typeutils.base.StringSerializer;
import org.apache.flink.api.java.typeutils.runtime.EitherSerializerSnapshot;
import org.apache.flink.api.scala.typeutils.EitherSerializer;
import org.apache.flink.api.scala.typeutils.EnumValueSerializer;
import org.apache.flink.api.scala.typeutils.NothingSerializer;
import org.apache.flink.api.scala.typeutils.OptionSerializer;
import org.apache.flink.api.scala.typeutils.ScalaCaseClassSerializer;
import org.apache.flink.api.scala.typeutils.ScalaEnumSerializerSnapshot;
import org.apache.flink.api.scala.typeutils.TraversableSerializer;
import org.apache.flink.api.scala.typeutils.TrySerializer;
import org.apache.flink.api.scala.typeutils.UnitSerializer;
import org.apache.flink.cep.nfa.NFA;
import org.apache.flink.cep.nfa.SharedBuffer;
import org.apache.flink.cep.nfa.sharedbuffer.SharedBufferNode;
import org.apache.flink.cep.nfa.sharedbuffer.SharedBufferNodeSerializer;
import org.apache.flink.core.memory.DataOutputSerializer;
import org.apache.flink.streaming.api.functions.sink.TwoPhaseCommitSinkFunction.StateSerializer;
import org.apache.flink.streaming.connectors.kafka.FlinkKafkaProducer;
import org.apache.flink.streaming.connectors.kafka.FlinkKafkaProducer011;
import org.apache.flink.types.LongValue;
import scala.Enumeration;
import scala.Option;
import scala.Some;
import scala.Tuple2;
import scala.Tuple3;
import scala.collection.JavaConverters;
import scala.runtime.BoxedUnit;
import scala.util.Failure;
import scala.util.Left;
import scala.util.Right;
import scala.util.Success;

/**
 * Types of Flink 1.20's Scala API, of Kafka's sink of Flink 1, and what only Flink 1 still reads.
 *
 * <pre>
 * javac -cp FLINK -d OUT ScalaVectors.java Vectors.java Json.java
 * java -cp FLINK:OUT ScalaVectors > scala.jsonl
 * </pre>
 */
public class ScalaVectors extends Vectors {
    private static final String SEQ = "implicitly[scala.collection.generic.CanBuildFrom[Seq[Any], Any, Seq[Any]]]";
    private static final String LIST = "implicitly[scala.collection.generic.CanBuildFrom[List[Any], Any, List[Any]]]";
    private static final Option<String> NONE = Option.empty();

    public static void main(String[] args) throws Exception {
        caseClasses();
        options();
        collections();
        enumerations();
        kafka();
        older();
    }

    // ---------------------------------------------------------------------------------- Scala

    @SuppressWarnings({"unchecked", "rawtypes"})
    private static TypeSerializer<?> caseClass(Class<?> type, TypeSerializer<?>... fields) {
        return new ScalaCaseClassSerializer(type, fields);
    }

    @SuppressWarnings({"unchecked", "rawtypes"})
    private static TypeSerializer<?> tuple2(TypeSerializer<?>... fields) {
        return org.apache.flink.api.scala.package$.MODULE$.tuple2Serializer((Class) Tuple2.class, fields);
    }

    private static Value tripleOf(Object first, Object second, Object third) {
        return hashed(new Tuple3<>(first, second, third), fields("f0", first, "f1", second, "f2", third));
    }

    private static Value pairOf(Object first, Object second) {
        return hashed(new Tuple2<>(first, second), fields("f0", first, "f1", second));
    }

    private static void caseClasses() throws Exception {
        TypeSerializer<?> text = StringSerializer.INSTANCE, number = LongSerializer.INSTANCE;
        type("Tuple2<String, Long>", tuple2(text, number), pairOf("a", 1L), pairOf(null, Long.MIN_VALUE),
                pairOf("", 5_000_000_000L));
        type("Tuple2<Int, Double>", tuple2(IntSerializer.INSTANCE, DoubleSerializer.INSTANCE), pairOf(-3, 2.0),
                pairOf(0, -0.5), pairOf(7, 1e300), pairOf(1, -0.0), pairOf(1, 0x1p63), pairOf(1, -0x1p63), pairOf(1, 1e20),
                pairOf(1, 0x1p31), pairOf(1, (double) 0.1f), pairOf(1, 0.1), pairOf(1, Double.POSITIVE_INFINITY));
        type("Tuple2<Float, Boolean>", tuple2(FloatSerializer.INSTANCE, BooleanSerializer.INSTANCE), pairOf(0.5f, true),
                pairOf(-3f, false), pairOf(1e10f, true), pairOf(Float.NEGATIVE_INFINITY, false));
        type("Tuple2<Char, Short>", tuple2(CharSerializer.INSTANCE, ShortSerializer.INSTANCE), pairOf('x', (short) -7));
        type("Tuple2<LongValue, Tuple2<Byte, Long>>", tuple2(LongValueSerializer.INSTANCE, tuple2(ByteSerializer.INSTANCE,
                number)), hashed(new Tuple2<>(new LongValue(-1L), new Tuple2<>((byte) 3, 1L << 40)),
                fields("f0", -1L, "f1", fields("f0", 3, "f1", 1L << 40))));
        type("case Tuple2<String, Long>", caseClass(Tuple2.class, text, number), pairOf("b", 2L));
        type("Tuple3<String, Long, Int>", caseClass(Tuple3.class, text, number, IntSerializer.INSTANCE), tripleOf("a", 1L, -1));
        type("Tuple3<String, Int, Int>", caseClass(Tuple3.class, text, IntSerializer.INSTANCE, IntSerializer.INSTANCE));
        type("Some<String>", caseClass(Some.class, text), value(new Some<>("x"), fields("f0", "x")));
        type("Right<Long>", caseClass(Right.class, number), value(new Right<>(4L), fields("f0", 4L)));
        type("Left<Long>", caseClass(Left.class, number), value(new Left<>(4L), fields("f0", 4L)));
        pairs("Tuple2<String, Long>", "Tuple2<Int, Double>", "case Tuple2<String, Long>");
        pairs("Tuple3<String, Long, Int>", "Tuple3<String, Int, Int>", "Some<String>");
        pairs("Right<Long>", "Left<Long>");
    }

    private static void options() throws Exception {
        TypeSerializer<String> text = StringSerializer.INSTANCE;
        TypeSerializer<Long> number = LongSerializer.INSTANCE;
        type("Option<String>", new OptionSerializer<>(text), value(new Some<>("a"), "a"), value(NONE, null),
                value(new Some<>(null), null));
        type("Option<Long>", new OptionSerializer<>(number), value(new Some<>(1L), 1L), value(Option.empty(), null));
        type("Option<Option<String>>", new OptionSerializer<>(new OptionSerializer<>(text)),
                value(new Some<>(new Some<>("a")), "a"), value(new Some<>(NONE), null), value(Option.empty(), null));
        type("Either<String, Long>", new EitherSerializer<>(text, number),
                value(new Left<>("a"), fields("is_left", true, "left", "a", "right", null)),
                value(new Right<>(2L), fields("is_left", false, "left", null, "right", 2L)));
        type("Either<Long, Long>", new EitherSerializer<>(number, number));
        type("Nothing", new NothingSerializer());
        type("Unit", new UnitSerializer(), value(BoxedUnit.UNIT, true));
        type("Option<Unit>", new OptionSerializer<>(new UnitSerializer()), value(new Some<>(BoxedUnit.UNIT), true));
        type("Option<Nothing>", new OptionSerializer<>(new NothingSerializer()), value(Option.empty(), null));
        pairs("Option<String>", "Option<Long>", "Either<String, Long>", "Either<Long, Long>");
        pairs("Unit", "Nothing");
        Value failure = failure(new IllegalStateException("out of order"));
        type("Try<Long>", tried(), value(new Success<>(7L), fields("is_success", true, "value", 7L, "failure", null)), failure);
    }

    private static TrySerializer<Long> tried() {
        return new TrySerializer<>(LongSerializer.INSTANCE,
                new SerializerConfigImpl());
    }

    /** An exception without a stack trace, which says where this program was compiled. */
    private static Value failure(Exception error) throws Exception {
        error.setStackTrace(new StackTraceElement[0]);
        DataOutputSerializer out = new DataOutputSerializer(64);
        tried().serialize(new Failure<>(error), out);
        byte[] data = out.getCopyOfBuffer();
        return value(new Failure<>(error), fields("is_success", false, "value", null,
                "failure", HEX.formatHex(data, 1, data.length)));
    }

    private static Value sequence(Object... held) {
        return value(JavaConverters.asScalaBuffer(Arrays.asList(held)).toList(), Arrays.asList(held));
    }

    @SuppressWarnings({"unchecked", "rawtypes"})
    private static void collections() throws Exception {
        type("Seq<String>", new TraversableSerializer(StringSerializer.INSTANCE, SEQ), sequence(), sequence("a", null, ""));
        type("List<String>", new TraversableSerializer(StringSerializer.INSTANCE, LIST), sequence("a"));
        type("Seq<Long>", new TraversableSerializer(LongSerializer.INSTANCE, SEQ), sequence(1L, -1L));
        Value entry = pairOf("k", 1L);
        type("Seq<Tuple2<String, Long>>",
                new TraversableSerializer(tuple2(StringSerializer.INSTANCE, LongSerializer.INSTANCE), SEQ),
                value(JavaConverters.asScalaBuffer(List.of(entry.object())).toList(), List.of(entry.json())));
        pairs("Seq<String>", "List<String>", "Seq<Long>");
    }

    /** Its name in Scala is `Color`. */
    public static final class Color$ extends Enumeration {
        public static final Color$ MODULE$ = new Color$();
        final Value red = Value("Red");
        final Value green = Value("Green");
    }

    /** One with gaps. */
    public static final class Code$ extends Enumeration {
        public static final Code$ MODULE$ = new Code$();
        final Value lost = Value(-1, "Lost");
        final Value fine = Value(200, "Fine");
    }

    private static void enumerations() throws Exception {
        type("Color", new EnumValueSerializer<>(Color$.MODULE$), value(Color$.MODULE$.red, "Red"),
                value(Color$.MODULE$.green, "Green"));
        type("Code", new EnumValueSerializer<>(Code$.MODULE$), value(Code$.MODULE$.lost, "Lost"),
                value(Code$.MODULE$.fine, "Fine"));
        type("Color with one more", constants("Red", "Green", "Blue"));
        type("Color of another order", constants("Green", "Red"));
        type("Color with one less", constants("Red"));
        pairs("Color", "Color with one more", "Color of another order", "Color with one less");
        pairs("Code");
        pairs("Color", "Code");
    }

    @SuppressWarnings({"unchecked", "rawtypes"})
    private static ScalaEnumSerializerSnapshot<?> constants(String... names) {
        List<Tuple2<String, Object>> held = new ArrayList<>();
        for (String name : names) {
            held.add(new Tuple2<>(name, held.size()));
        }
        return new ScalaEnumSerializerSnapshot(Color$.class, JavaConverters.asScalaBuffer(held).toList());
    }

    // ---------------------------------------------------------------------------------- others

    private static void kafka() throws Exception {
        Set<String> ids = new TreeSet<>(List.of("a-1", "a-2"));
        type("KafkaTransactionState", new FlinkKafkaProducer.TransactionStateSerializer(),
                transaction("a-1", 12L, (short) 3), transaction(null, -1L, (short) -1));
        type("KafkaTransactionContext", new FlinkKafkaProducer.ContextStateSerializer(),
                value(new FlinkKafkaProducer.KafkaTransactionContext(ids), new ArrayList<>(ids)),
                value(new FlinkKafkaProducer.KafkaTransactionContext(Set.of()), List.of()));
        type("NextTransactionalIdHint", new FlinkKafkaProducer.NextTransactionalIdHintSerializer(),
                value(new FlinkKafkaProducer.NextTransactionalIdHint(4, 20L),
                        fields("next_free_transactional_id", 20L, "last_parallelism", 4)));
        type("TwoPhaseCommitState of Kafka", new StateSerializer<>(
                new FlinkKafkaProducer.TransactionStateSerializer(), new FlinkKafkaProducer.ContextStateSerializer()));
        type("KafkaTransactionState of 0.11",
                new FlinkKafkaProducer011.TransactionStateSerializer.TransactionStateSerializerSnapshot());
        type("KafkaTransactionContext of 0.11",
                new FlinkKafkaProducer011.ContextStateSerializer.ContextStateSerializerSnapshot());
        type("NextTransactionalIdHint of 0.11",
                new FlinkKafkaProducer011.NextTransactionalIdHintSerializer.NextTransactionalIdHintSerializerSnapshot());
        pairs("KafkaTransactionState", "KafkaTransactionContext", "KafkaTransactionState of 0.11");
        pairs("NextTransactionalIdHint", "NextTransactionalIdHint of 0.11");
    }

    private static Value transaction(String id, long producer, short epoch) {
        return value(new FlinkKafkaProducer.KafkaTransactionState(id, producer, epoch, null),
                fields("transactional_id", id, "producer_id", producer, "epoch", epoch));
    }

    private static void older() throws Exception {
        GenericArraySerializer<Long> array = new GenericArraySerializer<>(Long.class, LongSerializer.INSTANCE);
        type("Long[]", array, value(new Long[] {1L, null}, Arrays.asList(1L, null)));
        type("Long[] of 1.7", new GenericArraySerializerConfigSnapshot<>(array));
        type("Java's Either<String, Long>", new org.apache.flink.api.java.typeutils.runtime.EitherSerializer<>(
                StringSerializer.INSTANCE, LongSerializer.INSTANCE));
        type("Either<String, Long> of 1.7",
                new EitherSerializerSnapshot<>(StringSerializer.INSTANCE, LongSerializer.INSTANCE));
        type("SharedBufferNode", new SharedBufferNodeSerializer());
        type("SharedBufferNode of 1.13", new SharedBufferNode.SharedBufferNodeSerializer());
        type("NFA of 1.5", new NFA.NFASerializer<>(LongSerializer.INSTANCE));
        type("SharedBuffer of 1.5", new SharedBuffer.SharedBufferSerializer<>(StringSerializer.INSTANCE, LongSerializer.INSTANCE));
        pair("Long[] of 1.7", "Long[]");
        pair("Either<String, Long> of 1.7", "Java's Either<String, Long>");
        pair("SharedBufferNode of 1.13", "SharedBufferNode");
        pair("SharedBufferNode of 1.13", "SharedBufferNode of 1.13");
        pair("Either<String, Long>", "Java's Either<String, Long>");
        pair("Java's Either<String, Long>", "Either<String, Long>");
        pair("NFA of 1.5", "NFA of 1.5");
    }
}
