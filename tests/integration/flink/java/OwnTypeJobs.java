import java.io.IOException;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.TreeMap;
import org.apache.flink.api.common.functions.OpenContext;
import org.apache.flink.api.common.state.ListState;
import org.apache.flink.api.common.state.ListStateDescriptor;
import org.apache.flink.api.common.state.MapState;
import org.apache.flink.api.common.state.MapStateDescriptor;
import org.apache.flink.api.common.state.ValueState;
import org.apache.flink.api.common.state.ValueStateDescriptor;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.api.common.typeutils.CompositeTypeSerializerSnapshot;
import org.apache.flink.api.common.typeutils.SimpleTypeSerializerSnapshot;
import org.apache.flink.api.common.typeutils.TypeSerializer;
import org.apache.flink.api.common.typeutils.TypeSerializerSchemaCompatibility;
import org.apache.flink.api.common.typeutils.TypeSerializerSnapshot;
import org.apache.flink.api.common.typeutils.base.LongSerializer;
import org.apache.flink.api.common.typeutils.base.StringSerializer;
import org.apache.flink.api.common.typeutils.base.TypeSerializerSingleton;
import org.apache.flink.api.java.tuple.Tuple2;
import org.apache.flink.api.java.typeutils.runtime.TupleSerializer;
import org.apache.flink.core.memory.DataInputView;
import org.apache.flink.core.memory.DataOutputView;
import org.apache.flink.runtime.state.FunctionInitializationContext;
import org.apache.flink.runtime.state.FunctionSnapshotContext;
import org.apache.flink.streaming.api.checkpoint.CheckpointedFunction;
import org.apache.flink.streaming.api.datastream.DataStream;
import org.apache.flink.streaming.api.functions.KeyedProcessFunction;
import org.apache.flink.util.Collector;

/**
 * A job whose serializers are its own, in every place where one can stand: snapshots without a
 * payload, with one that only their class can read, and composite ones, before and behind known ones.
 */
class OwnTypeJobs {
    /** A job whose lists and maps have fewer elements than `most`. */
    static DataStream<String> own(DataStream<Long> numbers, long most, boolean restoring) {
        return numbers.keyBy(k -> k * 31 - 7)
                .process(new Own(most, restoring)).uid("own").name("own");
    }

    static class Money {
        final long cents;
        final String currency;

        Money(long cents, String currency) {
            this.cents = cents;
            this.currency = currency;
        }

        static Money of(long k) {
            return new Money(k * 101 - 50, k % 3 == 0 ? "EUR" : "größe" + k);
        }

        @Override
        public String toString() {
            return cents + " " + currency;
        }
    }

    /** What is the same for all of these serializers: their values never change. */
    abstract static class OwnSerializer<T> extends TypeSerializerSingleton<T> {
        @Override
        public boolean isImmutableType() {
            return true;
        }

        @Override
        public T createInstance() {
            return null;
        }

        @Override
        public T copy(T from) {
            return from;
        }

        @Override
        public T copy(T from, T reuse) {
            return from;
        }

        @Override
        public int getLength() {
            return -1;
        }

        @Override
        public T deserialize(T reuse, DataInputView in) throws IOException {
            return deserialize(in);
        }

        @Override
        public void copy(DataInputView in, DataOutputView out) throws IOException {
            serialize(deserialize(in), out);
        }
    }

    public static class MoneySerializer extends OwnSerializer<Money> {
        @Override
        public void serialize(Money value, DataOutputView out) throws IOException {
            out.writeLong(value.cents);
            out.writeUTF(value.currency);
        }

        @Override
        public Money deserialize(DataInputView in) throws IOException {
            return new Money(in.readLong(), in.readUTF());
        }

        @Override
        public TypeSerializerSnapshot<Money> snapshotConfiguration() {
            return new MoneySnapshot();
        }
    }

    public static class MoneySnapshot extends SimpleTypeSerializerSnapshot<Money> {
        public MoneySnapshot() {
            super(MoneySerializer::new);
        }
    }

    /** Longs in a unit, of which its snapshot tells, among other things. */
    public static class RangeSerializer extends OwnSerializer<List<Long>> {
        final String unit;

        RangeSerializer(String unit) {
            this.unit = unit;
        }

        @Override
        public void serialize(List<Long> value, DataOutputView out) throws IOException {
            out.writeByte(value.size());
            for (long one : value) {
                out.writeLong(one);
            }
        }

        @Override
        public List<Long> deserialize(DataInputView in) throws IOException {
            List<Long> found = new ArrayList<>();
            for (int left = in.readUnsignedByte(); left > 0; left--) {
                found.add(in.readLong());
            }
            return found;
        }

        @Override
        public TypeSerializerSnapshot<List<Long>> snapshotConfiguration() {
            return new RangeSnapshot(unit);
        }
    }

    public static class RangeSnapshot implements TypeSerializerSnapshot<List<Long>> {
        private String unit;

        public RangeSnapshot() {}

        RangeSnapshot(String unit) {
            this.unit = unit;
        }

        @Override
        public int getCurrentVersion() {
            return 7;
        }

        @Override
        public void writeSnapshot(DataOutputView out) throws IOException {
            out.writeInt(3);
            out.writeUTF(unit);
            TypeSerializerSnapshot.writeVersionedSnapshot(
                    out, LongSerializer.INSTANCE.snapshotConfiguration());
            out.writeShort(0);
        }

        @Override
        public void readSnapshot(int version, DataInputView in, ClassLoader loader)
                throws IOException {
            in.readInt();
            unit = in.readUTF();
            TypeSerializerSnapshot.readVersionedSnapshot(in, loader);
            in.readShort();
        }

        @Override
        public TypeSerializer<List<Long>> restoreSerializer() {
            return new RangeSerializer(unit);
        }

        @Override
        public TypeSerializerSchemaCompatibility<List<Long>> resolveSchemaCompatibility(
                TypeSerializerSnapshot<List<Long>> old) {
            return old instanceof RangeSnapshot && Objects.equals(((RangeSnapshot) old).unit, unit)
                    ? TypeSerializerSchemaCompatibility.compatibleAsIs()
                    : TypeSerializerSchemaCompatibility.incompatible();
        }
    }

    /** A value with a name. */
    public static class NamedSerializer extends OwnSerializer<Tuple2<String, Money>> {
        private final TypeSerializer<Money> money;

        NamedSerializer(TypeSerializer<Money> money) {
            this.money = money;
        }

        @Override
        public void serialize(Tuple2<String, Money> value, DataOutputView out) throws IOException {
            out.writeUTF(value.f0);
            money.serialize(value.f1, out);
        }

        @Override
        public Tuple2<String, Money> deserialize(DataInputView in) throws IOException {
            return Tuple2.of(in.readUTF(), money.deserialize(in));
        }

        @Override
        public TypeSerializerSnapshot<Tuple2<String, Money>> snapshotConfiguration() {
            return new NamedSnapshot(this);
        }
    }

    public static class NamedSnapshot
            extends CompositeTypeSerializerSnapshot<Tuple2<String, Money>, NamedSerializer> {
        public NamedSnapshot() {}

        NamedSnapshot(NamedSerializer serializer) {
            super(serializer);
        }

        @Override
        protected int getCurrentOuterSnapshotVersion() {
            return 2;
        }

        @Override
        protected TypeSerializer<?>[] getNestedSerializers(NamedSerializer outer) {
            return new TypeSerializer<?>[] {outer.money, StringSerializer.INSTANCE};
        }

        @Override
        @SuppressWarnings("unchecked")
        protected NamedSerializer createOuterSerializerWithNestedSerializers(
                TypeSerializer<?>[] nested) {
            return new NamedSerializer((TypeSerializer<Money>) nested[0]);
        }
    }

    static class Own extends KeyedProcessFunction<Long, Long, String>
            implements CheckpointedFunction {
        private final long most;
        private final boolean restoring;
        private final List<List<Long>> seen = new ArrayList<>();
        private transient ListState<List<Long>> listed;
        private transient ValueState<Money> money;
        private transient ListState<List<Long>> ranges;
        private transient MapState<String, Money> ledger;
        private transient ValueState<Tuple2<String, Money>> named;
        private transient ValueState<Tuple2<Money, List<Long>>> both;
        private transient ValueState<Long> count;

        Own(long most, boolean restoring) {
            this.most = most;
            this.restoring = restoring;
        }

        @Override
        @SuppressWarnings({"unchecked", "rawtypes"})
        public void open(OpenContext context) {
            MoneySerializer own = new MoneySerializer();
            RangeSerializer range = new RangeSerializer("metres");
            money = getRuntimeContext().getState(new ValueStateDescriptor<>("money", own));
            ranges = getRuntimeContext().getListState(new ListStateDescriptor<>("ranges", range));
            ledger = getRuntimeContext().getMapState(
                    new MapStateDescriptor<>("ledger", StringSerializer.INSTANCE, own));
            named = getRuntimeContext().getState(
                    new ValueStateDescriptor<>("named", new NamedSerializer(own)));
            both = getRuntimeContext().getState(new ValueStateDescriptor<>(
                    "both", new TupleSerializer(Tuple2.class, new TypeSerializer[] {own, range})));
            count = getRuntimeContext().getState(new ValueStateDescriptor<>("count", Types.LONG));
        }

        @Override
        public void initializeState(FunctionInitializationContext context) throws Exception {
            listed = context.getOperatorStateStore()
                    .getListState(new ListStateDescriptor<>("seen", new RangeSerializer("seconds")));
            listed.get().forEach(seen::add);
        }

        @Override
        public void snapshotState(FunctionSnapshotContext context) throws Exception {
            listed.update(seen);
        }

        @Override
        public void processElement(Long k, Context context, Collector<String> out) throws Exception {
            if (restoring) {
                out.collect(Json.of(everything(context.getCurrentKey())));
                return;
            }
            money.update(Money.of(k));
            for (long i = 0; i < k % most; i++) {
                ranges.add(List.of(k, i, -i));
                ledger.put("n" + i, Money.of(k + i));
            }
            named.update(Tuple2.of("name-" + k, Money.of(2 * k)));
            both.update(Tuple2.of(Money.of(3 * k), List.of(k)));
            count.update(k);
            if (k % 10 == 0) {
                seen.add(List.of(k, k + 1));
            }
            Jobs.SEEN.incrementAndGet();
        }

        private Map<String, Object> everything(Long key) throws Exception {
            Map<String, Object> line = new TreeMap<>();
            line.put("key", key);
            line.put("money", money.value().toString());
            List<Object> items = new ArrayList<>();
            ranges.get().forEach(one -> items.add(new ArrayList<Object>(one)));
            line.put("ranges", items);
            Map<String, Object> entries = new TreeMap<>();
            for (Map.Entry<String, Money> one : ledger.entries()) {
                entries.put(one.getKey(), one.getValue().toString());
            }
            line.put("ledger", entries);
            line.put("named", named.value().toString());
            line.put("both", both.value().toString());
            line.put("count", count.value());
            return line;
        }
    }
}
