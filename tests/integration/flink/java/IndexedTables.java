import java.util.ArrayList;
import java.util.Collection;
import java.util.List;
import java.util.Optional;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import org.apache.flink.api.common.functions.FlatMapFunction;
import org.apache.flink.configuration.ConfigOption;
import org.apache.flink.streaming.api.datastream.DataStream;
import org.apache.flink.streaming.api.datastream.DataStreamSink;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.table.catalog.GenericInMemoryCatalog;
import org.apache.flink.table.connector.ChangelogMode;
import org.apache.flink.table.connector.ProviderContext;
import org.apache.flink.table.connector.sink.DataStreamSinkProvider;
import org.apache.flink.table.connector.sink.DynamicTableSink;
import org.apache.flink.table.connector.source.DataStreamScanProvider;
import org.apache.flink.table.connector.source.DynamicTableSource;
import org.apache.flink.table.connector.source.LookupTableSource;
import org.apache.flink.table.connector.source.ScanTableSource;
import org.apache.flink.table.connector.source.lookup.AsyncLookupFunctionProvider;
import org.apache.flink.table.data.DecimalData;
import org.apache.flink.table.data.GenericRowData;
import org.apache.flink.table.data.RowData;
import org.apache.flink.table.data.StringData;
import org.apache.flink.table.factories.DynamicTableSinkFactory;
import org.apache.flink.table.factories.DynamicTableSourceFactory;
import org.apache.flink.table.factories.Factory;
import org.apache.flink.table.functions.AsyncLookupFunction;
import org.apache.flink.table.runtime.typeutils.InternalTypeInfo;
import org.apache.flink.table.types.logical.RowType;

/**
 * A catalog whose tables are streams of a few rows (id BIGINT, g BIGINT, name STRING, price DECIMAL(10, 2))
 * that can be looked up by their index, column g: what a delta join is planned over.
 *
 * A lookup is answered only with `-Danswers=true`: until then records wait, and a savepoint has them.
 */
public class IndexedTables extends GenericInMemoryCatalog {
    static final long ROWS = 12;
    private static final long GROUPS = 5;
    private static final boolean ANSWERS = Boolean.getBoolean("answers");

    public IndexedTables(String name) {
        super(name);
    }

    @Override
    public Optional<Factory> getFactory() {
        return Optional.of(new Tables());
    }

    private static RowData row(long k) {
        StringData name = k % 5 == 0 ? null : StringData.fromString("größe-" + k);
        return GenericRowData.of(k, k % GROUPS, name, DecimalData.fromUnscaledLong(k * 7, 10, 2));
    }

    public static class Tables implements DynamicTableSourceFactory, DynamicTableSinkFactory {
        @Override
        public String factoryIdentifier() {
            return "indexed";
        }

        @Override
        public Set<ConfigOption<?>> requiredOptions() {
            return Set.of();
        }

        @Override
        public Set<ConfigOption<?>> optionalOptions() {
            return Set.of();
        }

        @Override
        public DynamicTableSource createDynamicTableSource(Context context) {
            RowType type = (RowType) context.getPhysicalRowDataType().getLogicalType();
            return new Rows(type, context.getObjectIdentifier().getObjectName());
        }

        @Override
        public DynamicTableSink createDynamicTableSink(Context context) {
            return new Joined();
        }
    }

    /** Prints which rows were joined, as `joined ID ID`; takes changes more than once, as a delta join may send them. */
    private static class Joined implements DynamicTableSink {
        @Override
        public ChangelogMode getChangelogMode(ChangelogMode requested) {
            return ChangelogMode.upsert();
        }

        @Override
        public SinkRuntimeProvider getSinkRuntimeProvider(Context context) {
            return new DataStreamSinkProvider() {
                @Override
                public DataStreamSink<?> consumeDataStream(ProviderContext provider, DataStream<RowData> rows) {
                    return rows.map(row -> "joined " + row.getLong(0) + " " + row.getLong(4)).print();
                }
            };
        }

        @Override
        public DynamicTableSink copy() {
            return new Joined();
        }

        @Override
        public String asSummaryString() {
            return "joined rows";
        }
    }

    private static class Rows implements ScanTableSource, LookupTableSource {
        private final RowType type;
        private final String name;

        Rows(RowType type, String name) {
            this.type = type;
            this.name = name;
        }

        @Override
        public ChangelogMode getChangelogMode() {
            return ChangelogMode.insertOnly();
        }

        @Override
        public ScanRuntimeProvider getScanRuntimeProvider(ScanContext context) {
            return new Stream(type, name);
        }

        @Override
        public LookupRuntimeProvider getLookupRuntimeProvider(LookupContext context) {
            return AsyncLookupFunctionProvider.of(new Index());
        }

        @Override
        public DynamicTableSource copy() {
            return new Rows(type, name);
        }

        @Override
        public String asSummaryString() {
            return "indexed rows";
        }
    }

    private static class Stream implements DataStreamScanProvider {
        private final RowType type;
        private final String name;

        Stream(RowType type, String name) {
            this.type = type;
            this.name = name;
        }

        @Override
        public boolean isBounded() {
            return false;
        }

        @Override
        public DataStream<RowData> produceDataStream(ProviderContext context, StreamExecutionEnvironment env) {
            return env.fromSequence(0, Long.MAX_VALUE - 1).setParallelism(1).uid(context.generateUid("source").orElse(name + "-source"))
                    .flatMap((FlatMapFunction<Long, RowData>) (number, out) -> {
                        if (number < ROWS) {
                            out.collect(row(number));
                            SqlQueries.SEEN.incrementAndGet();
                        } else {
                            Thread.sleep(5);
                        }
                    })
                    .returns(InternalTypeInfo.of(type))
                    .setParallelism(1).uid(context.generateUid("rows").orElse(name));
        }
    }

    public static class Index extends AsyncLookupFunction {
        @Override
        public CompletableFuture<Collection<RowData>> asyncLookup(RowData key) {
            if (!ANSWERS) {
                return new CompletableFuture<>();
            }
            List<RowData> rows = new ArrayList<>();
            for (long k = 0; k < ROWS; k++) {
                if (k % GROUPS == key.getLong(0)) {
                    rows.add(row(k));
                }
            }
            return CompletableFuture.completedFuture(rows);
        }
    }
}
