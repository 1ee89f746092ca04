import java.util.HashMap;
import java.util.Map;
import org.apache.flink.api.common.RuntimeExecutionMode;
import org.apache.flink.api.common.functions.OpenContext;
import org.apache.flink.api.common.state.ValueState;
import org.apache.flink.api.common.state.ValueStateDescriptor;
import org.apache.flink.api.common.typeinfo.TypeInformation;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.api.java.tuple.Tuple2;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.runtime.state.StateBackend;
import org.apache.flink.runtime.state.hashmap.HashMapStateBackend;
import org.apache.flink.state.api.OperatorIdentifier;
import org.apache.flink.state.api.OperatorTransformation;
import org.apache.flink.state.api.SavepointReader;
import org.apache.flink.state.api.SavepointWriter;
import org.apache.flink.state.api.functions.KeyedStateBootstrapFunction;
import org.apache.flink.state.api.functions.KeyedStateReaderFunction;
import org.apache.flink.state.rocksdb.EmbeddedRocksDBStateBackend;
import org.apache.flink.streaming.api.datastream.DataStream;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.streaming.api.functions.sink.v2.DiscardingSink;
import org.apache.flink.util.Collector;

/**
 * The peer for POJO state: Flink's own State Processor API, both cores, objects reused.
 *
 * <pre>
 * write    backend= entries= to=
 * read     backend= savepoint=        rows are dropped
 * </pre>
 *
 * Prints the seconds that the job took.
 */
public class PojoBench {
    /** Six fields of the usual kinds. */
    public static class Customer {
        public boolean active;
        public Double balance;
        public String city;
        public long id;
        public String name;
        public int visits;
    }

    private static final TypeInformation<Customer> CUSTOMER = Types.POJO(Customer.class);
    private static final OperatorIdentifier OPERATOR = OperatorIdentifier.forUid("customers");

    public static void main(String[] words) throws Exception {
        Map<String, String> args = new HashMap<>();
        for (int i = 1; i < words.length; i++) {
            int at = words[i].indexOf('=');
            args.put(words[i].substring(0, at), words[i].substring(at + 1));
        }
        Configuration conf = new Configuration();
        conf.setString("taskmanager.memory.managed.size", "512m");
        conf.setString("rest.port", "0");
        StreamExecutionEnvironment env = StreamExecutionEnvironment.createLocalEnvironment(2, conf);
        env.setRuntimeMode(RuntimeExecutionMode.BATCH);
        env.getConfig().enableObjectReuse();
        StateBackend backend = args.get("backend").equals("rocksdb")
                ? new EmbeddedRocksDBStateBackend() : new HashMapStateBackend();
        if (words[0].equals("write")) {
            write(env, backend, Long.parseLong(args.get("entries")), args.get("to"));
        } else {
            SavepointReader.read(env, args.get("savepoint"), backend)
                    .readKeyedState(OPERATOR, new Reader(), Types.STRING, Types.TUPLE(Types.STRING, CUSTOMER))
                    .sinkTo(new DiscardingSink<>());
        }
        long start = System.nanoTime();
        env.execute(words[0]);
        System.out.println((System.nanoTime() - start) / 1e9);
        System.exit(0);
    }

    private static void write(StreamExecutionEnvironment env, StateBackend backend, long entries, String to) {
        DataStream<Customer> customers = env.fromSequence(0, entries - 1).map(PojoBench::customer).returns(CUSTOMER);
        SavepointWriter.newSavepoint(env, backend, 128)
                .withOperator(OPERATOR, OperatorTransformation.bootstrapWith(customers)
                        .keyBy(customer -> "key-" + customer.id, Types.STRING)
                        .transform(new Bootstrapper()))
                .write(to);
    }

    private static Customer customer(long id) {
        Customer made = new Customer();
        made.active = id % 2 == 0;
        made.balance = id % 10 == 3 ? null : id / 8.0;
        made.city = "city-" + id % 1000;
        made.id = id;
        made.name = id % 17 == 0 ? null : "name-" + id;
        made.visits = (int) (id % 100);
        return made;
    }

    static class Bootstrapper extends KeyedStateBootstrapFunction<String, Customer> {
        private transient ValueState<Customer> customer;

        @Override
        public void open(OpenContext context) {
            customer = getRuntimeContext().getState(new ValueStateDescriptor<>("customer", CUSTOMER));
        }

        @Override
        public void processElement(Customer value, Context context) throws Exception {
            customer.update(value);
        }
    }

    static class Reader extends KeyedStateReaderFunction<String, Tuple2<String, Customer>> {
        private transient ValueState<Customer> customer;

        @Override
        public void open(OpenContext context) {
            customer = getRuntimeContext().getState(new ValueStateDescriptor<>("customer", CUSTOMER));
        }

        @Override
        public void readKey(String key, Context context, Collector<Tuple2<String, Customer>> out) throws Exception {
            out.collect(Tuple2.of(key, customer.value()));
        }
    }
}
