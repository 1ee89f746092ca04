import org.apache.avro.Schema;
import org.apache.avro.specific.SpecificRecordBase;

/** A record as Avro generates them, but for its getters. */
public class Event extends SpecificRecordBase {
    public static final Schema SCHEMA$ = new Schema.Parser().parse((
            "{'type':'record','name':'Event','fields':["
                    + "{'name':'id','type':'int'},"
                    + "{'name':'name','type':'string'},"
                    + "{'name':'note','type':['null','string']},"
                    + "{'name':'tier','type':{'type':'enum','name':'Tier','symbols':['BRONZE','SILVER','GOLD']}},"
                    + "{'name':'tags','type':{'type':'array','items':'string'}},"
                    + "{'name':'place','type':['null',{'type':'record','name':'Place','fields':["
                    + "{'name':'street','type':'string'},{'name':'zip','type':'int'}]}]},"
                    + "{'name':'counts','type':{'type':'map','values':'long'}}]}").replace('\'', '"'));

    private final Object[] values = new Object[SCHEMA$.getFields().size()];

    @Override
    public Schema getSchema() {
        return SCHEMA$;
    }

    @Override
    public Object get(int field) {
        return values[field];
    }

    @Override
    public void put(int field, Object value) {
        values[field] = value;
    }
}
