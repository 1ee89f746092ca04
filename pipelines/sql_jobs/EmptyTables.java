import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Proxy;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.configuration.ConfigOption;
import org.apache.flink.streaming.api.functions.sink.v2.DiscardingSink;
import org.apache.flink.table.api.DataTypes;
import org.apache.flink.table.api.ValidationException;
import org.apache.flink.table.catalog.Column;
import org.apache.flink.table.catalog.ResolvedSchema;
import org.apache.flink.table.connector.ChangelogMode;
import org.apache.flink.table.connector.sink.DynamicTableSink;
import org.apache.flink.table.connector.sink.SinkV2Provider;
import org.apache.flink.table.connector.sink.abilities.SupportsPartitioning;
import org.apache.flink.table.connector.sink.abilities.SupportsWritingMetadata;
import org.apache.flink.table.connector.source.DynamicTableSource;
import org.apache.flink.table.connector.source.LookupTableSource;
import org.apache.flink.table.connector.source.ScanTableSource;
import org.apache.flink.table.connector.source.SourceProvider;
import org.apache.flink.table.connector.source.abilities.SupportsFilterPushDown;
import org.apache.flink.table.connector.source.abilities.SupportsLimitPushDown;
import org.apache.flink.table.connector.source.abilities.SupportsProjectionPushDown;
import org.apache.flink.table.connector.source.abilities.SupportsReadingMetadata;
import org.apache.flink.table.connector.source.abilities.SupportsWatermarkPushDown;
import org.apache.flink.table.connector.source.lookup.AsyncLookupFunctionProvider;
import org.apache.flink.table.connector.source.lookup.LookupFunctionProvider;
import org.apache.flink.table.data.RowData;
import org.apache.flink.table.expressions.CallExpression;
import org.apache.flink.table.expressions.FieldReferenceExpression;
import org.apache.flink.table.expressions.ResolvedExpression;
import org.apache.flink.table.expressions.ValueLiteralExpression;
import org.apache.flink.table.factories.DynamicTableFactory;
import org.apache.flink.table.factories.DynamicTableSinkFactory;
import org.apache.flink.table.factories.DynamicTableSourceFactory;
import org.apache.flink.table.factories.FactoryUtil;
import org.apache.flink.table.functions.AsyncLookupFunction;
import org.apache.flink.table.functions.BuiltInFunctionDefinitions;
import org.apache.flink.table.functions.FunctionDefinition;
import org.apache.flink.table.functions.LookupFunction;
import org.apache.flink.table.module.Module;
import org.apache.flink.table.types.DataType;
import org.apache.flink.types.RowKind;

/**
 * Empty tables in the place of all that a script declares: nothing is read, written or asked.
 *
 * A table's options stay as they are. What the planner asks of a connector is answered as the connector
 * itself would: which changes it emits and takes, and what of the query it does by itself. Connectors that
 * are not known are refused. With `real` a connector that is on the class path is used itself.
 */
final class EmptyTables implements Module, DynamicTableSourceFactory, DynamicTableSinkFactory {
    private static final ChangelogMode INSERTS = ChangelogMode.insertOnly();
    private static final ChangelogMode CHANGES = ChangelogMode.all();
    private static final ChangelogMode UPSERTS =
            modeOf(RowKind.INSERT, RowKind.UPDATE_AFTER, RowKind.DELETE);
    private static final Set<String> CHANGE_FORMATS = Set.of(
            "debezium-json", "debezium-avro-confluent", "canal-json", "maxwell-json", "ogg-json");
    private static final Set<String> INSERT_FORMATS = Set.of(
            "avro", "avro-confluent", "csv", "json", "orc", "parquet", "protobuf", "raw");
    /** What connectors and formats have beside columns, in the order in which the planner gets it. */
    private static final Map<String, DataType> METADATA = new LinkedHashMap<>();

    static {
        DataType text = DataTypes.STRING();
        DataType time = DataTypes.TIMESTAMP_LTZ(3);
        for (String key : List.of("schema", "database", "table")) {
            METADATA.put("value." + key, text);
        }
        METADATA.put("value.sql-type", DataTypes.MAP(text, DataTypes.INT()));
        METADATA.put("value.pk-names", DataTypes.ARRAY(text));
        METADATA.put("value.primary-key-columns", DataTypes.ARRAY(text));
        METADATA.put("value.ingestion-timestamp", time);
        METADATA.put("value.event-timestamp", time);
        METADATA.put("value.source.timestamp", time);
        for (String key : List.of("database", "schema", "table")) {
            METADATA.put("value.source." + key, text);
        }
        METADATA.put("value.source.properties", DataTypes.MAP(text, text));
        METADATA.put("topic", text.notNull());
        METADATA.put("partition", DataTypes.INT().notNull());
        METADATA.put("headers", DataTypes.MAP(text, DataTypes.BYTES()).notNull());
        METADATA.put("leader-epoch", DataTypes.INT());
        METADATA.put("offset", DataTypes.BIGINT().notNull());
        METADATA.put("timestamp", time.notNull());
        METADATA.put("timestamp-type", text.notNull());
        for (String key : List.of(
                "table_name", "collection_name", "schema_name", "database_name", "file.path", "file.name")) {
            METADATA.put(key, text.notNull());
        }
        METADATA.put("op_ts", time.notNull());
        METADATA.put("row_kind", text.notNull());
        METADATA.put("file.size", DataTypes.BIGINT().notNull());
        METADATA.put("file.modification-time", time.notNull());
    }

    private static final Set<FunctionDefinition> COMPARED = Set.of(
            BuiltInFunctionDefinitions.EQUALS, BuiltInFunctionDefinitions.NOT_EQUALS,
            BuiltInFunctionDefinitions.LESS_THAN, BuiltInFunctionDefinitions.LESS_THAN_OR_EQUAL,
            BuiltInFunctionDefinitions.GREATER_THAN, BuiltInFunctionDefinitions.GREATER_THAN_OR_EQUAL,
            BuiltInFunctionDefinitions.AND, BuiltInFunctionDefinitions.OR, BuiltInFunctionDefinitions.LIKE);
    private static final Set<FunctionDefinition> NULL_TESTS =
            Set.of(BuiltInFunctionDefinitions.IS_NULL, BuiltInFunctionDefinitions.IS_NOT_NULL);

    private final boolean real;

    EmptyTables(boolean real) {
        this.real = real;
    }

    @Override
    public Optional<DynamicTableSourceFactory> getTableSourceFactory() {
        return Optional.of(this);
    }

    @Override
    public Optional<DynamicTableSinkFactory> getTableSinkFactory() {
        return Optional.of(this);
    }

    @Override
    public String factoryIdentifier() {
        return "empty";
    }

    @Override
    public Set<ConfigOption<?>> requiredOptions() {
        return new HashSet<>();
    }

    @Override
    public Set<ConfigOption<?>> optionalOptions() {
        return new HashSet<>();
    }

    @Override
    public DynamicTableSource createDynamicTableSource(Context context) {
        Table table = new Table(context);
        Optional<DynamicTableSourceFactory> own = itself(DynamicTableSourceFactory.class, table, context);
        return own.isPresent() ? own.get().createDynamicTableSource(context) : Scanned.of(table);
    }

    @Override
    public DynamicTableSink createDynamicTableSink(Context context) {
        Table table = new Table(context);
        Optional<DynamicTableSinkFactory> own = itself(DynamicTableSinkFactory.class, table, context);
        return own.isPresent() ? own.get().createDynamicTableSink(context) : new Written(table);
    }

    private <F extends DynamicTableFactory> Optional<F> itself(Class<F> kind, Table table, Context context) {
        try {
            return real
                    ? Optional.of(FactoryUtil.discoverFactory(context.getClassLoader(), kind, table.connector))
                    : Optional.empty();
        } catch (ValidationException notThere) {
            return Optional.empty();
        }
    }

    private static ChangelogMode modeOf(RowKind... kinds) {
        ChangelogMode.Builder mode = ChangelogMode.newBuilder();
        for (RowKind kind : kinds) {
            mode.addContainedKind(kind);
        }
        return mode.build();
    }

    /** What the options of a table say of it. */
    private static final class Table {
        private final Map<String, String> options;
        private final ResolvedSchema schema;
        private final String name;
        private final String connector;

        Table(DynamicTableFactory.Context context) {
            options = context.getCatalogTable().getOptions();
            schema = context.getCatalogTable().getResolvedSchema();
            name = context.getObjectIdentifier().getObjectName();
            connector = options.getOrDefault("connector", "");
        }

        /** The connector without the version of what it connects to. */
        String kind() {
            return connector.replaceFirst("-\\d+(\\.\\d+)?$", "");
        }

        ValidationException unknown(String what) {
            return new ValidationException(what + " of table `" + name + "` is not known: its JAR is needed");
        }

        ChangelogMode ofFormat() {
            String format = options.getOrDefault("value.format", options.getOrDefault("format", ""));
            if (CHANGE_FORMATS.contains(format)) {
                return CHANGES;
            }
            if (!INSERT_FORMATS.contains(format)) {
                throw unknown("format '" + format + "'");
            }
            return INSERTS;
        }

        ChangelogMode emitted() {
            switch (kind()) {
                case "kafka":
                case "filesystem":
                    return ofFormat();
                case "upsert-kafka":
                    return modeOf(RowKind.UPDATE_AFTER, RowKind.DELETE);
                case "jdbc":
                case "mongodb":
                case "hbase":
                case "datagen":
                case "faker":
                    return INSERTS;
                case "mysql-cdc":
                case "postgres-cdc":
                case "oracle-cdc":
                case "sqlserver-cdc":
                case "db2-cdc":
                case "oceanbase-cdc":
                case "vitess-cdc":
                    if (is("scan.read-changelog-as-append-only.enabled", "true")) {
                        return INSERTS;
                    }
                    return is("changelog-mode", "upsert") ? ChangelogMode.upsert() : CHANGES;
                case "mongodb-cdc":
                    return is("scan.full-changelog", "true") ? CHANGES : ChangelogMode.upsert();
                case "tidb-cdc":
                    return UPSERTS;
                default:
                    throw unknown("connector '" + connector + "'");
            }
        }

        ChangelogMode taken(ChangelogMode requested) {
            switch (kind()) {
                case "kafka":
                case "filesystem":
                    return ofFormat();
                case "upsert-kafka":
                case "jdbc":
                    return UPSERTS;
                case "mongodb":
                    return schema.getPrimaryKey().isPresent() ? ChangelogMode.upsert() : INSERTS;
                case "blackhole":
                case "elasticsearch":
                case "opensearch":
                case "hbase":
                    return modeOf(requested.getContainedKinds().stream()
                            .filter(kind -> kind != RowKind.UPDATE_BEFORE).toArray(RowKind[]::new));
                case "print":
                    return requested;
                default:
                    throw unknown("connector '" + connector + "'");
            }
        }

        boolean is(String option, String value) {
            return options.getOrDefault(option, "").trim().equalsIgnoreCase(value);
        }

        /** The interfaces by which the planner sees what the connector does by itself. */
        List<Class<?>> abilities() {
            List<Class<?>> found = new ArrayList<>(List.of(ScanTableSource.class, LookupTableSource.class));
            switch (kind()) {
                case "kafka":
                case "upsert-kafka":
                    found.addAll(List.of(SupportsReadingMetadata.class, SupportsWatermarkPushDown.class));
                    break;
                case "jdbc":
                case "mongodb":
                    found.addAll(List.of(SupportsProjectionPushDown.class, SupportsLimitPushDown.class,
                            SupportsFilterPushDown.class));
                    break;
                case "filesystem":
                    found.addAll(List.of(SupportsProjectionPushDown.class, SupportsLimitPushDown.class,
                            SupportsFilterPushDown.class, SupportsReadingMetadata.class));
                    break;
                case "hbase":
                    found.add(SupportsProjectionPushDown.class);
                    break;
                case "datagen":
                case "faker":
                    found.add(SupportsLimitPushDown.class);
                    break;
                default:
                    found.add(SupportsReadingMetadata.class);
            }
            return found;
        }

        /** The metadata columns of the table, by their keys, in the order and of the types of the connector. */
        Map<String, DataType> metadata(boolean writable) {
            Map<String, DataType> declared = new LinkedHashMap<>();
            for (Column column : schema.getColumns()) {
                if (column instanceof Column.MetadataColumn
                        && !(writable && ((Column.MetadataColumn) column).isVirtual())) {
                    String key = ((Column.MetadataColumn) column).getMetadataKey().orElse(column.getName());
                    declared.put(key, column.getDataType());
                }
            }
            Map<String, DataType> found = new LinkedHashMap<>();
            METADATA.forEach((key, type) -> {
                if (declared.remove(key) != null) {
                    found.put(key, writable && !key.equals("topic") ? type.nullable() : type);
                }
            });
            found.putAll(declared);
            return found;
        }

        /** Whether the connector evaluates a condition by itself. */
        boolean evaluates(ResolvedExpression condition) {
            if (!(condition instanceof CallExpression)) {
                return false;
            }
            FunctionDefinition function = ((CallExpression) condition).getFunctionDefinition();
            List<ResolvedExpression> children = condition.getResolvedChildren();
            if (NULL_TESTS.contains(function)) {
                return children.get(0) instanceof FieldReferenceExpression;
            }
            if (function.equals(BuiltInFunctionDefinitions.LIKE) && kind().equals("mongodb")) {
                return false;
            }
            return COMPARED.contains(function) && children.subList(0, 2).stream().allMatch(
                    child -> child instanceof FieldReferenceExpression || literal(child) || evaluates(child));
        }

        private static boolean literal(ResolvedExpression value) {
            if (!(value instanceof ValueLiteralExpression)) {
                return false;
            }
            switch (value.getOutputDataType().getLogicalType().getTypeRoot()) {
                case CHAR:
                case VARCHAR:
                case BOOLEAN:
                case DECIMAL:
                case TINYINT:
                case SMALLINT:
                case INTEGER:
                case BIGINT:
                case FLOAT:
                case DOUBLE:
                case DATE:
                case TIME_WITHOUT_TIME_ZONE:
                case TIMESTAMP_WITHOUT_TIME_ZONE:
                    return true;
                default:
                    return false;
            }
        }
    }

    /** A table that is read. The planner gets a proxy, which has the abilities of the connector alone. */
    private static final class Scanned
            implements ScanTableSource, LookupTableSource, SupportsProjectionPushDown, SupportsFilterPushDown,
                    SupportsLimitPushDown, SupportsWatermarkPushDown, SupportsReadingMetadata {
        private final Table table;

        private Scanned(Table table) {
            this.table = table;
        }

        static DynamicTableSource of(Table table) {
            Scanned scanned = new Scanned(table);
            return (DynamicTableSource) Proxy.newProxyInstance(
                    EmptyTables.class.getClassLoader(), table.abilities().toArray(new Class<?>[0]),
                    (proxy, method, arguments) -> {
                        try {
                            return method.invoke(scanned, arguments);
                        } catch (InvocationTargetException problem) {
                            throw problem.getCause();
                        }
                    });
        }

        @Override
        public DynamicTableSource copy() {
            return of(table);
        }

        @Override
        public String asSummaryString() {
            return "empty";
        }

        @Override
        public ChangelogMode getChangelogMode() {
            return table.emitted();
        }

        @Override
        public ScanRuntimeProvider getScanRuntimeProvider(ScanContext context) {
            return SourceProvider.of(new Silent<RowData>());
        }

        @Override
        public LookupRuntimeProvider getLookupRuntimeProvider(LookupContext context) {
            if (table.is("lookup.async", "true")) {
                return AsyncLookupFunctionProvider.of(new NothingLater());
            }
            return LookupFunctionProvider.of(new Nothing());
        }

        @Override
        public boolean supportsNestedProjection() {
            return false;
        }

        @Override
        public void applyProjection(int[][] fields, DataType produced) {}

        @Override
        public Result applyFilters(List<ResolvedExpression> filters) {
            if (table.kind().equals("filesystem")) { // which reads less, and leaves all to the query
                return Result.of(new ArrayList<>(filters), new ArrayList<>(filters));
            }
            List<ResolvedExpression> accepted = new ArrayList<>();
            List<ResolvedExpression> left = new ArrayList<>();
            for (ResolvedExpression filter : filters) {
                boolean taken = !table.is("filter.handling.policy", "never") && table.evaluates(filter);
                (taken ? accepted : left).add(filter);
            }
            return Result.of(accepted, left);
        }

        @Override
        public void applyLimit(long limit) {}

        @Override
        public void applyWatermark(WatermarkStrategy<RowData> strategy) {}

        @Override
        public Map<String, DataType> listReadableMetadata() {
            return table.metadata(false);
        }

        @Override
        public void applyReadableMetadata(List<String> keys, DataType produced) {}

        @Override
        public boolean supportsMetadataProjection() {
            return !table.kind().endsWith("kafka");
        }
    }

    /** Finds nothing. */
    public static final class Nothing extends LookupFunction {
        @Override
        public Collection<RowData> lookup(RowData key) {
            return List.of();
        }
    }

    /** Finds nothing, at once. */
    public static final class NothingLater extends AsyncLookupFunction {
        @Override
        public CompletableFuture<Collection<RowData>> asyncLookup(RowData key) {
            return CompletableFuture.completedFuture(List.of());
        }
    }

    /** A table that is written. */
    private static final class Written
            implements DynamicTableSink, SupportsPartitioning, SupportsWritingMetadata {
        private final Table table;

        Written(Table table) {
            this.table = table;
        }

        @Override
        public ChangelogMode getChangelogMode(ChangelogMode requested) {
            return table.taken(requested);
        }

        @Override
        public SinkRuntimeProvider getSinkRuntimeProvider(Context context) {
            return SinkV2Provider.of(new DiscardingSink<RowData>());
        }

        @Override
        public Map<String, DataType> listWritableMetadata() {
            return table.metadata(true);
        }

        @Override
        public void applyWritableMetadata(List<String> keys, DataType consumed) {}

        @Override
        public void applyStaticPartition(Map<String, String> partition) {}

        @Override
        public DynamicTableSink copy() {
            return new Written(table);
        }

        @Override
        public String asSummaryString() {
            return "empty";
        }
    }
}
